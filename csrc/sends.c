/* Single sends, as many as came together, and the answers to them. The twins are
   FrameDecoder.next_command in rocketpipe/wire/frame.py with read_send in
   broker/processors/sending.py and PropertyTreatment in broker/sent_properties.py; and
   RemotingCommand.encode for what that processor answers. */

#include "header.h"
#include <stdio.h>

#define SEND_MESSAGE_V2 310
#define PROPERTIES_BYTES_MAX 32767
#define ANSWER_NUMBERS_BYTES 160 /* for four of 64 bits in digits, and what stands between */
#define WORDS_MAX 16

typedef struct {
    const byte *start;
    Py_ssize_t size;
} Word;

typedef struct {
    int64_t opaque, queue_id, sys_flag, born_timestamp_ms, message_flag, times;
    Text topic, unique_id;
    byte properties[PROPERTIES_BYTES_MAX];
    size_t properties_size;
    uint32_t letters; /* which fields there are, a bit for each */
} Send;

static const byte *find(const byte *at, const byte *end, const void *wanted, size_t size) {
    const byte *word = wanted;
    while ((size_t)(end - at) >= size &&
           (at = memchr(at, word[0], (size_t)(end - at) - size + 1)) != NULL) {
        if (memcmp(at, word, size) == 0) {
            return at;
        }
        at++;
    }
    return NULL;
}

/* The text of the properties, its escapes undone: ASCII, and no NUL, which a record may not have. */
static int read_properties(Reader *reader, Send *send) {
    byte *out = send->properties, *room_end = out + sizeof send->properties - 4;
    if (!is_next(reader, '"')) {
        return 0;
    }
    while (reader->at < reader->end && out < room_end) {
        byte next = *reader->at++;
        if (next == '"') {
            send->properties_size = (size_t)(out - send->properties);
            return send->properties_size > 0;
        }
        if (next < 0x20 || next > 0x7E) {
            return 0;
        }
        if (next != '\\') {
            *out++ = next;
            continue;
        }
        byte *unescaped = unescape(reader, out);
        if (unescaped != out + 1 || *out == 0 || *out > 0x7E) {
            return 0;
        }
        out = unescaped;
    }
    return 0;
}

/* Whether nothing in the properties asks for a treatment of its own; then they have an id. */
static int look_at_properties(Send *send, const Word *words, Py_ssize_t words_count) {
    static const char id_mark[] = "UNIQ_KEY\x01", wait_mark[] = "WAIT\x01";
    static const char wait_true[] = "WAIT\x01true\x02";
    const byte *start = send->properties, *end = start + send->properties_size, *at, *id = NULL;
    for (Py_ssize_t n = 0; n < words_count; n++) {
        if (find(start, end, words[n].start, (size_t)words[n].size) != NULL) {
            return 0;
        }
    }
    at = find(start, end, wait_mark, sizeof wait_mark - 1);
    if (at != NULL && (find(at, end, wait_true, sizeof wait_true - 1) != at ||
                       find(at + 1, end, wait_mark, sizeof wait_mark - 1) != NULL)) {
        return 0;
    }
    for (at = start; (at = find(at, end, id_mark, sizeof id_mark - 1)) != NULL; at++) {
        id = at; /* of two the last counts */
    }
    if (id == NULL || (id > start && id[-1] != 2)) {
        return 0;
    }
    id += sizeof id_mark - 1;
    const byte *stop = memchr(id, 2, (size_t)(end - id));
    send->unique_id.start = id;
    send->unique_id.size = (size_t)((stop ? stop : end) - id);
    for (size_t n = 0; n < send->unique_id.size; n++) {
        if (id[n] < 0x20 || id[n] == '"' || id[n] == '\\') {
            return 0; /* the answer would have to escape it */
        }
    }
    return send->unique_id.size > 0;
}

static int read_field(Reader *reader, Text name, void *fields) {
    Send *send = fields;
    Text value;
    int64_t ignored;
    if (name.size != 1 || *name.start < 'a' || *name.start > 'm') {
        return read_text(reader, &value);
    }
    uint32_t letter = UINT32_C(1) << (*name.start - 'a');
    if (send->letters & letter) {
        return 0; /* twice: the twin knows which one counts */
    }
    send->letters |= letter;
    if (*name.start == 'i') {
        return read_properties(reader, send);
    }
    if (!read_text(reader, &value)) {
        return 0;
    }
    switch (*name.start) {
    case 'b': send->topic = value; return value.size > 0;
    case 'd': return number_of(value, INT32_MAX, &ignored);
    case 'e': return number_of(value, INT32_MAX, &send->queue_id);
    case 'f': return number_of(value, INT32_MAX, &send->sys_flag);
    case 'g': return number_of(value, INT64_MAX, &send->born_timestamp_ms);
    case 'h': return number_of(value, INT32_MAX, &send->message_flag);
    case 'j': return number_of(value, INT32_MAX, &send->times);
    case 'k': return is_named(value, "false");
    case 'l': return number_of(value, INT32_MAX, &ignored);
    case 'm': return is_named(value, "false"); /* not a batch */
    default: return 1;                         /* a and c: any text */
    }
}

/* Whether it is all of the header of a send of one message that wants an answer. */
static int read_header(Reader *reader, Send *send) {
    const uint32_t needed = 0x1FF; /* from a to i */
    Envelope envelope = {{SEND_MESSAGE_V2, SEND_MESSAGE_V2}, 0, 0, -1, -1};
    send->times = 0;
    send->letters = 0;
    if (!read_envelope(reader, &envelope, read_field, send)) {
        return 0;
    }
    send->opaque = envelope.opaque;
    return (send->letters & needed) == needed;
}

static PyObject *properties_of(const Send *send, Word suffix) {
    size_t size = send->properties_size;
    size_t gap = send->properties[size - 1] == 2 ? 0 : 1;
    PyObject *properties =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size + gap) + suffix.size);
    if (properties != NULL) {
        byte *at = (byte *)PyBytes_AsString(properties);
        at = put_bytes(at, send->properties, size);
        if (gap) {
            *at++ = 2;
        }
        put_bytes(at, suffix.start, (size_t)suffix.size);
    }
    return properties;
}

static int add_send(PyObject *sends, const Send *send, Word suffix, const byte *body,
                    const byte *end, const byte *data) {
    PyObject *properties = properties_of(send, suffix);
    PyObject *found =
        properties == NULL
            ? NULL
            : Py_BuildValue("LLs#LLLLLs#Ny#", (long long)(end - data), (long long)send->opaque,
                            (const char *)send->topic.start, (Py_ssize_t)send->topic.size,
                            (long long)send->queue_id, (long long)send->message_flag,
                            (long long)send->sys_flag, (long long)send->born_timestamp_ms,
                            (long long)send->times, (const char *)send->unique_id.start,
                            (Py_ssize_t)send->unique_id.size, properties, (const char *)body,
                            (Py_ssize_t)(end - body));
    int is_added = found != NULL && PyList_Append(sends, found) == 0;
    Py_XDECREF(found);
    return is_added;
}

/* read_sends(data, start, frame_bytes_max, most, words, suffix): of each of the next whole frames, as
   long as they are plain sends: where it ends, opaque, topic, queue, flag of the message, its system
   flag, when it was born, how often it was consumed, its id, its properties with the suffix, and its
   body. Properties that hold one of the words are not plain. */
static PyObject *read_sends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    int64_t start, bytes_max, most;
    Word words[WORDS_MAX], suffix;
    Py_ssize_t words_count = count == 6 && PyTuple_Check(args[4]) ? PyTuple_Size(args[4]) : -1;
    int is_right = words_count >= 0 && words_count <= WORDS_MAX &&
                   take_number(args[1], 0, PY_SSIZE_T_MAX, &start) &&
                   take_number(args[2], 0, INT32_MAX, &bytes_max) &&
                   take_number(args[3], 0, INT32_MAX, &most) &&
                   take_bytes(args[5], &suffix.start, &suffix.size);
    for (Py_ssize_t n = 0; is_right && n < words_count; n++) {
        is_right = take_bytes(PyTuple_GetItem(args[4], n), &words[n].start, &words[n].size) &&
                   words[n].size > 0;
    }
    if (!is_right) {
        PyErr_SetString(PyExc_TypeError,
                        "read_sends(data, start, frame_bytes_max, most, words, suffix)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const byte *data = view.buf, *at = data + (start < view.len ? start : view.len), *end;
    PyObject *sends = PyList_New(0);
    Send send;
    Reader header;
    while (sends != NULL && most-- > 0 &&
           (end = whole_frame(at, view.len - (at - data), bytes_max, &header)) != NULL) {
        const byte *body = header.end;
        if (body == end || !read_header(&header, &send) ||
            !look_at_properties(&send, words, words_count)) {
            break;
        }
        if (!add_send(sends, &send, suffix, body, end, data)) {
            Py_CLEAR(sends);
        }
        at = end;
    }
    PyBuffer_Release(&view);
    return sends;
}

/* write_sent(rows, first, second, third, fourth): frames of answers to sends, which differ in opaque,
   offset in the log, queue, offset there and id, one of each in a row. The texts of the header that
   all share stand before, between and behind those. */
static PyObject *write_sent(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Word texts[4];
    int is_right = count == 5 && PyList_Check(args[0]);
    int64_t texts_bytes = 0, bytes = 0;
    for (int n = 0; is_right && n < 4; n++) {
        is_right = take_bytes(args[n + 1], &texts[n].start, &texts[n].size);
        texts_bytes += is_right ? texts[n].size : 0;
    }
    if (!is_right) {
        PyErr_SetString(PyExc_TypeError, "write_sent(rows, first, second, third, fourth)");
        return NULL;
    }
    Py_ssize_t rows = PyList_Size(args[0]);
    const byte *id;
    Py_ssize_t id_size;
    for (Py_ssize_t n = 0; n < rows; n++) {
        PyObject *row = PyList_GetItem(args[0], n);
        if (!PyTuple_Check(row) || PyTuple_Size(row) != 5 ||
            !take_text(PyTuple_GetItem(row, 4), &id, &id_size)) {
            PyErr_SetString(PyExc_TypeError, "a row has four numbers and a text");
            return NULL;
        }
        bytes += 8 + texts_bytes + ANSWER_NUMBERS_BYTES + id_size;
    }
    byte *frames = PyMem_Malloc((size_t)bytes + 1), *out = frames;
    if (frames == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t n = 0; n < rows; n++) {
        PyObject *row = PyList_GetItem(args[0], n);
        int64_t numbers[4];
        for (int each = 0; is_right && each < 4; each++) {
            is_right = take_number(PyTuple_GetItem(row, each), 0, INT64_MAX, &numbers[each]);
        }
        if (!is_right || !take_text(PyTuple_GetItem(row, 4), &id, &id_size)) {
            PyMem_Free(frames);
            PyErr_SetString(PyExc_ValueError, "a number of a row is none, or negative");
            return NULL;
        }
        byte *frame = out;
        out = put_bytes(out + 8, texts[0].start, (size_t)texts[0].size);
        out += sprintf((char *)out, "%016llX\",\"queueId\":\"%lld\",\"queueOffset\":\"%lld\"",
                       (unsigned long long)numbers[1], (long long)numbers[2],
                       (long long)numbers[3]);
        out = put_bytes(out, texts[1].start, (size_t)texts[1].size);
        out = put_bytes(out, id, (size_t)id_size);
        out = put_bytes(out, texts[2].start, (size_t)texts[2].size);
        out += sprintf((char *)out, "%lld", (long long)numbers[0]);
        out = put_bytes(out, texts[3].start, (size_t)texts[3].size);
        put_u32(put_u32(frame, (uint32_t)(out - frame - 4)), (uint32_t)(out - frame - 8));
    }
    PyObject *written = PyBytes_FromStringAndSize((const char *)frames, out - frames);
    PyMem_Free(frames);
    return written;
}

PyMethodDef send_methods[] = {
    {"read_sends", (PyCFunction)(void (*)(void))read_sends, METH_FASTCALL, NULL},
    {"write_sent", (PyCFunction)(void (*)(void))write_sent, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
