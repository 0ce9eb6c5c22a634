/* Records as a store writes and reads them: the twins are in rocketpipe/broker/store. */

#include "common.h"

#define MEMBER_HEAD_BYTES 20
#define MEMBER_BYTES_MIN 22
#define ENTRY_BYTES 20 /* of a queue: offset in the log (8), size (4), tags code (8) */
#define KEYED_BYTES 12 /* hash of a key (4), offset in the log (8) */
#define INDEX_ENTRY_BYTES 20
#define PLACE_MAX (INT64_C(1) << 62)

typedef struct {
    const byte *start;
    Py_ssize_t size;
} Span;

typedef struct {
    Span body, properties, unique_id, keys;
    uint32_t flag, tags_code;
    uint32_t key_count;
} Member;

/* If the pair has this name and a value, that; the name ends with 0x01. */
static void take_value(Span pair, const char *name, Py_ssize_t name_size, Span *value) {
    if (pair.size > name_size && memcmp(pair.start, name, (size_t)name_size) == 0) {
        value->start = pair.start + name_size;
        value->size = pair.size - name_size;
    }
}

/* The next of the keys that single spaces separate, and what is left; its size is 0 at the end. */
static Span next_key(Span *keys) {
    Span key = {keys->start, 0};
    while (keys->size && *key.start == ' ') {
        key.start++;
        keys->size--;
    }
    while (key.size < keys->size && key.start[key.size] != ' ') {
        key.size++;
    }
    keys->start = key.start + key.size;
    keys->size -= key.size;
    return key;
}

/* What queues and index want to know of the properties; 0 if the twin has to look. */
static int look_at_properties(Member *member) {
    const byte *at = member->properties.start, *end = at + member->properties.size;
    Span tags = {NULL, 0};
    if (member->properties.size == 0) {
        return 1;
    }
    if (memchr(at, 0, (size_t)(end - at)) != NULL) {
        return 0; /* torn, perhaps */
    }
    while (at < end) {
        const byte *stop = memchr(at, 2, (size_t)(end - at));
        Span pair = {at, (stop ? stop : end) - at};
        take_value(pair, "TAGS\x01", 5, &tags);
        take_value(pair, "UNIQ_KEY\x01", 9, &member->unique_id);
        take_value(pair, "KEYS\x01", 5, &member->keys);
        at += pair.size + 1;
    }
    for (Py_ssize_t n = 0; n < tags.size; n++) {
        if (tags.start[n] >= 0x80) {
            return 0; /* Java hashes units of UTF-16 */
        }
        member->tags_code = 31 * member->tags_code + tags.start[n];
    }
    Span keys = member->keys;
    while (next_key(&keys).size) {
        member->key_count++;
    }
    return 1;
}

/* Take the next member of a batch; 0 if there is none, or it is not well. */
static int split_member(Span *batch, Member *member) {
    const byte *at = batch->start;
    if (batch->size < MEMBER_BYTES_MIN) {
        return 0;
    }
    int64_t size = get_i32(at), body_size = get_i32(at + 16);
    int64_t properties_at = MEMBER_HEAD_BYTES + body_size + 2;
    if (body_size < 0 || properties_at > size || size > batch->size) {
        return 0;
    }
    int64_t properties_size = (int16_t)get_u16(at + properties_at - 2);
    if (properties_at + properties_size != size) {
        return 0;
    }
    member->flag = get_u32(at + 12);
    member->body = (Span){at + MEMBER_HEAD_BYTES, (Py_ssize_t)body_size};
    member->properties = (Span){at + properties_at, (Py_ssize_t)properties_size};
    batch->start += size;
    batch->size -= (Py_ssize_t)size;
    return 1;
}

/* What all records of a put share. */
typedef struct {
    Span topic, born_host, store_host;
    int64_t queue_id, queue_offset, queue_step, physical_offset, sys_flag, born_timestamp_ms;
    int64_t store_timestamp_ms, reconsume_times, prepared_transaction_offset, magic;
} Shared;

static byte *put_record(byte *at, const Shared *shared, const Member *member, int64_t index,
                        int64_t place, int64_t size) {
    const Span *body = &member->body;
    at = put_u32(at, (uint32_t)size);
    at = put_u32(at, (uint32_t)shared->magic);
    at = put_u32(at, crc32_of(body->start, (size_t)body->size, 0) & 0x7FFFFFFF);
    at = put_u32(at, (uint32_t)shared->queue_id);
    at = put_u32(at, member->flag);
    at = put_i64(at, shared->queue_offset + index * shared->queue_step);
    at = put_i64(at, place);
    at = put_u32(at, (uint32_t)shared->sys_flag);
    at = put_i64(at, shared->born_timestamp_ms);
    at = put_bytes(at, shared->born_host.start, (size_t)shared->born_host.size);
    at = put_i64(at, shared->store_timestamp_ms);
    at = put_bytes(at, shared->store_host.start, (size_t)shared->store_host.size);
    at = put_u32(at, (uint32_t)shared->reconsume_times);
    at = put_i64(at, shared->prepared_transaction_offset);
    at = put_u32(at, (uint32_t)body->size);
    at = put_bytes(at, body->start, (size_t)body->size);
    if (shared->topic.size > 127) {
        at = put_u16(at, (uint32_t)shared->topic.size);
    } else {
        *at++ = (byte)shared->topic.size;
    }
    at = put_bytes(at, shared->topic.start, (size_t)shared->topic.size);
    at = put_u16(at, (uint32_t)member->properties.size);
    return put_bytes(at, member->properties.start, (size_t)member->properties.size);
}

static byte *put_keyed(byte *at, uint32_t topic_crc, Span key, int64_t place) {
    return put_i64(put_u32(at, crc32_of(key.start, (size_t)key.size, topic_crc)), place);
}

/* The records of members, their offsets, and what their queue and the index keep of them. */
static PyObject *lay_out_members(const Shared *shared, const Member *members, Py_ssize_t count) {
    int64_t rest = 72 + shared->born_host.size + shared->store_host.size + shared->topic.size +
                   (shared->topic.size > 127 ? 2 : 1) + 2;
    int64_t records_bytes = 0, keyed_count = 0;
    int has_keys = (shared->sys_flag & 0xC) != 0xC; /* not what undoes a half message */
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t size = rest + members[n].body.size + members[n].properties.size;
        if (size > INT32_MAX) {
            Py_RETURN_NONE;
        }
        records_bytes += size;
        keyed_count += has_keys ? (members[n].unique_id.size > 0) + (int64_t)members[n].key_count : 0;
    }
    if (records_bytes > INT32_MAX) {
        Py_RETURN_NONE;
    }
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)records_bytes);
    PyObject *entries = PyBytes_FromStringAndSize(NULL, count * ENTRY_BYTES);
    PyObject *keyed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(keyed_count * KEYED_BYTES));
    PyObject *offsets = PyTuple_New(count), *laid_out = NULL;
    if (records == NULL || entries == NULL || keyed == NULL || offsets == NULL) {
        goto done;
    }
    byte *record = (byte *)PyBytes_AsString(records), *entry = (byte *)PyBytes_AsString(entries);
    byte *key_at = (byte *)PyBytes_AsString(keyed);
    uint32_t topic_crc = crc32_of(shared->topic.start, (size_t)shared->topic.size, 0);
    topic_crc = crc32_of((const byte *)"#", 1, topic_crc);
    int64_t place = shared->physical_offset;
    for (Py_ssize_t n = 0; n < count; n++) {
        const Member *member = &members[n];
        int64_t size = rest + member->body.size + member->properties.size;
        record = put_record(record, shared, member, n, place, size);
        entry = put_u32(put_i64(entry, place), (uint32_t)size);
        entry = put_i64(entry, (int32_t)member->tags_code);
        if (has_keys && member->unique_id.size) {
            key_at = put_keyed(key_at, topic_crc, member->unique_id, place);
        }
        if (has_keys) {
            Span keys = member->keys, key;
            while ((key = next_key(&keys)).size) {
                key_at = put_keyed(key_at, topic_crc, key, place);
            }
        }
        PyObject *offset = PyLong_FromLongLong(place);
        if (offset == NULL) {
            goto done;
        }
        PyTuple_SetItem(offsets, n, offset);
        place += size;
    }
    laid_out = PyTuple_Pack(4, records, offsets, entries, keyed);
done:
    Py_XDECREF(records);
    Py_XDECREF(offsets);
    Py_XDECREF(entries);
    Py_XDECREF(keyed);
    return laid_out;
}

static PyObject *lay_out_batch(const Shared *shared, Span batch) {
    Py_ssize_t room = batch.size / MEMBER_BYTES_MIN, count = 0;
    Member *members = room ? PyMem_Calloc((size_t)room, sizeof *members) : NULL;
    if (room && members == NULL) {
        return PyErr_NoMemory();
    }
    int is_plain = room > 0;
    while (is_plain && batch.size) {
        is_plain = count < room && split_member(&batch, &members[count]) &&
                   look_at_properties(&members[count]);
        count++;
    }
    PyObject *laid_out = Py_None;
    if (is_plain) {
        laid_out = lay_out_members(shared, members, count);
    } else {
        Py_INCREF(laid_out);
    }
    PyMem_Free(members);
    return laid_out;
}

/* lay_out(body, properties, flag, topic, queue_id, queue_offset, queue_step, physical_offset,
   sys_flag, born_timestamp_ms, born_host, store_timestamp_ms, store_host, reconsume_times,
   prepared_transaction_offset): records, their offsets, entries of the queue and of the index; None
   if it is not plain. Without properties, the body is a batch. */
static PyObject *lay_out(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Shared shared;
    Member member;
    int64_t flag;
    if (count != 15) {
        PyErr_SetString(PyExc_TypeError, "lay_out takes 15 arguments");
        return NULL;
    }
    memset(&member, 0, sizeof member);
    if (!take_bytes(args[0], &member.body.start, &member.body.size) ||
        member.body.size > INT32_MAX || !take_number(args[2], INT32_MIN, INT32_MAX, &flag) ||
        !take_bytes(args[3], &shared.topic.start, &shared.topic.size) ||
        shared.topic.size > 32767 ||
        !take_number(args[4], INT32_MIN, INT32_MAX, &shared.queue_id) ||
        !take_number(args[5], 0, PLACE_MAX, &shared.queue_offset) ||
        !take_number(args[6], 0, 1, &shared.queue_step) ||
        !take_number(args[7], 0, PLACE_MAX, &shared.physical_offset) ||
        !take_number(args[8], INT32_MIN, INT32_MAX, &shared.sys_flag) ||
        !take_number(args[9], INT64_MIN, INT64_MAX, &shared.born_timestamp_ms) ||
        !take_bytes(args[10], &shared.born_host.start, &shared.born_host.size) ||
        !take_number(args[11], INT64_MIN, INT64_MAX, &shared.store_timestamp_ms) ||
        !take_bytes(args[12], &shared.store_host.start, &shared.store_host.size) ||
        !take_number(args[13], INT32_MIN, INT32_MAX, &shared.reconsume_times) ||
        !take_number(args[14], INT64_MIN, INT64_MAX, &shared.prepared_transaction_offset) ||
        (shared.born_host.size != 8 && shared.born_host.size != 20) ||
        (shared.store_host.size != 8 && shared.store_host.size != 20)) {
        Py_RETURN_NONE;
    }
    shared.magic = shared.topic.size > 127 ? 0xDAA320AB : 0xDAA320A7;
    shared.sys_flag &= ~INT64_C(0x30); /* the bits that say whether hosts are of IPv6 */
    shared.sys_flag |= shared.born_host.size == 20 ? 0x10 : 0;
    shared.sys_flag |= shared.store_host.size == 20 ? 0x20 : 0;
    if (args[1] == Py_None) {
        return lay_out_batch(&shared, member.body);
    }
    member.flag = (uint32_t)flag;
    if (!take_bytes(args[1], &member.properties.start, &member.properties.size) ||
        member.properties.size > 32767 || !look_at_properties(&member)) {
        Py_RETURN_NONE;
    }
    return lay_out_members(&shared, &member, 1);
}

/* index_entries(slots, count, keyed, seconds): the entries that a file of the index gets for hashes
   and places, after so many that it has; the slots, in memory, then name the newest. */
static PyObject *index_entries(PyObject *Py_UNUSED(module), PyObject *const *args,
                               Py_ssize_t count) {
    const byte *keyed;
    Py_ssize_t keyed_size;
    int64_t number, seconds;
    Py_buffer view;
    if (count != 4 || !take_number(args[1], 0, UINT32_MAX, &number) ||
        !take_bytes(args[2], &keyed, &keyed_size) ||
        !take_number(args[3], INT32_MIN, INT32_MAX, &seconds) ||
        number + keyed_size / KEYED_BYTES > UINT32_MAX) {
        PyErr_SetString(PyExc_TypeError, "index_entries(slots, count, keyed, seconds)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    uint32_t slots = (uint32_t)(view.len / 4);
    Py_ssize_t quantity = keyed_size / KEYED_BYTES;
    PyObject *entries = NULL;
    if (slots == 0 || view.len / 4 > UINT32_MAX || view.len % 4 || keyed_size % KEYED_BYTES) {
        PyErr_SetString(PyExc_ValueError, "slots of 4 bytes, and hashes and places of 12");
    } else {
        entries = PyBytes_FromStringAndSize(NULL, quantity * INDEX_ENTRY_BYTES);
    }
    if (entries != NULL) {
        byte *at = (byte *)PyBytes_AsString(entries);
        for (Py_ssize_t n = 0; n < quantity; n++, keyed += KEYED_BYTES) {
            uint32_t newest, *slot = (uint32_t *)view.buf + get_u32(keyed) % slots;
            memcpy(&newest, slot, 4);
            at = put_bytes(at, keyed, KEYED_BYTES);
            at = put_u32(put_u32(at, (uint32_t)seconds), newest);
            newest = (uint32_t)++number;
            memcpy(slot, &newest, 4);
        }
    }
    PyBuffer_Release(&view);
    return entries;
}

static int add_span(PyObject *spans, int64_t start, int64_t end, Py_ssize_t records) {
    PyObject *span = Py_BuildValue("LLn", (long long)start, (long long)(end - start), records);
    int is_added = span != NULL && PyList_Append(spans, span) == 0;
    Py_XDECREF(span);
    return is_added;
}

/* choose_spans(entries, bytes_max, gap_bytes_max, span_bytes_max): which records of these entries of a
   queue are to be read, from the first on, and in what spans of the log: of each where it begins, its
   bytes and how many records it has; then the sizes of them all. None if an entry is not plain. */
static PyObject *choose_spans(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    const byte *entries;
    Py_ssize_t entries_size;
    int64_t bytes_max, gap_max, span_max;
    if (count != 4 || !take_bytes(args[0], &entries, &entries_size) ||
        !take_number(args[1], 0, INT64_MAX, &bytes_max) ||
        !take_number(args[2], 0, INT32_MAX, &gap_max) ||
        !take_number(args[3], 0, INT32_MAX, &span_max)) {
        PyErr_SetString(PyExc_TypeError,
                        "choose_spans(entries, bytes_max, gap_bytes_max, span_bytes_max)");
        return NULL;
    }
    Py_ssize_t quantity = entries_size / ENTRY_BYTES;
    if (quantity == 0 || entries_size % ENTRY_BYTES) {
        Py_RETURN_NONE;
    }
    PyObject *spans = PyList_New(0);
    if (spans == NULL) {
        return NULL;
    }
    int64_t start = get_i64(entries), end = start, bytes = 0;
    Py_ssize_t chosen = 0, first = 0; /* records in all, and before this span */
    int is_plain = start >= 0;
    for (; is_plain && chosen < quantity; chosen++) {
        int64_t place = get_i64(entries + chosen * ENTRY_BYTES);
        int64_t size = get_i32(entries + chosen * ENTRY_BYTES + 8);
        if (size < RECORD_BYTES_MIN || place < end || place > PLACE_MAX) {
            is_plain = 0;
            break;
        }
        bytes += size;
        if (chosen > 0 && bytes > bytes_max) {
            break;
        }
        if (chosen > first && (place - end > gap_max || place + size - start > span_max)) {
            if (!add_span(spans, start, end, chosen - first)) {
                Py_DECREF(spans);
                return NULL;
            }
            start = place;
            first = chosen;
        }
        end = place + size;
    }
    if (!is_plain) {
        Py_DECREF(spans);
        Py_RETURN_NONE;
    }
    PyObject *sizes = add_span(spans, start, end, chosen - first) ? PyTuple_New(chosen) : NULL;
    for (Py_ssize_t n = 0; sizes != NULL && n < chosen; n++) {
        PyObject *size = PyLong_FromLong(get_i32(entries + n * ENTRY_BYTES + 8));
        if (size == NULL) {
            Py_CLEAR(sizes);
        } else {
            PyTuple_SetItem(sizes, n, size);
        }
    }
    if (sizes == NULL) {
        Py_DECREF(spans);
        return NULL;
    }
    return Py_BuildValue("NN", spans, sizes);
}

/* cut_span(span, entries): the records of the entries, out of a span that `choose_spans` told; None
   unless each is there, with its size and its place in the log. */
static PyObject *cut_span(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    const byte *span, *entries;
    Py_ssize_t span_size, entries_size, bytes = 0;
    if (count != 2 || !take_bytes(args[0], &span, &span_size) ||
        !take_bytes(args[1], &entries, &entries_size)) {
        PyErr_SetString(PyExc_TypeError, "cut_span(span, entries)");
        return NULL;
    }
    Py_ssize_t quantity = entries_size / ENTRY_BYTES;
    if (quantity == 0 || entries_size % ENTRY_BYTES) {
        Py_RETURN_NONE;
    }
    int64_t start = get_i64(entries);
    for (Py_ssize_t n = 0; n < quantity; n++) {
        int64_t place = get_i64(entries + n * ENTRY_BYTES);
        int64_t size = get_i32(entries + n * ENTRY_BYTES + 8);
        if (start < 0 || place < start || place - start > span_size || size < RECORD_BYTES_MIN ||
            size > span_size - (place - start)) {
            Py_RETURN_NONE;
        }
        const byte *record = span + (place - start);
        if (get_i32(record) != size || get_i64(record + 28) != place || bytes > PY_SSIZE_T_MAX - size) {
            Py_RETURN_NONE;
        }
        bytes += (Py_ssize_t)size;
    }
    if (bytes == span_size) { /* nothing lies between them: they do not overlap, see choose_spans */
        Py_INCREF(args[0]);
        return args[0];
    }
    PyObject *records = PyBytes_FromStringAndSize(NULL, bytes);
    if (records == NULL) {
        return NULL;
    }
    byte *at = (byte *)PyBytes_AsString(records);
    for (Py_ssize_t n = 0; n < quantity; n++) {
        int64_t place = get_i64(entries + n * ENTRY_BYTES) - start;
        at = put_bytes(at, span + place, (size_t)get_i32(entries + n * ENTRY_BYTES + 8));
    }
    return records;
}

PyMethodDef store_methods[] = {
    {"lay_out", (PyCFunction)(void (*)(void))lay_out, METH_FASTCALL, NULL},
    {"index_entries", (PyCFunction)(void (*)(void))index_entries, METH_FASTCALL, NULL},
    {"choose_spans", (PyCFunction)(void (*)(void))choose_spans, METH_FASTCALL, NULL},
    {"cut_span", (PyCFunction)(void (*)(void))cut_span, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
