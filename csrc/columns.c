/* Stored records as columns of Arrow's memory layout: the twin is rocketpipe/spark/columns.py.

   Each column is a few buffers, and all of them lie in one block, which its owner may use again: new
   memory would cost more than what is done here. Records are walked over twice: to see how much room
   they need at most, and to fill it. Kinds of columns and the order of their buffers are those of
   rocketpipe/spark/compiled_columns.py. */

#include "common.h"

#define COLUMNS_MAX 32
#define BUFFERS_MAX 5
#define PAIRS_MAX 64 /* of a message; one that has more is the twin's */
#define TIMESTAMP_MS_MAX (INT64_MAX / 1000)
#define ANSWERS_BYTES_MAX (1 << 28) /* so that Arrow's offsets of 4 bytes are enough for all columns */
#define ID_BYTES 32
#define HOST_BYTES_MAX 21 /* 255.255.255.255:65535 */
#define ALIGNMENT 64

enum {
    TOPIC,
    QUEUE_ID,
    QUEUE_OFFSET,
    MESSAGE_ID,
    OFFSET_MESSAGE_ID,
    TAGS,
    KEYS,
    BODY,
    PROPERTIES,
    BORN_TIMESTAMP,
    STORE_TIMESTAMP,
    BORN_HOST,
    STORE_HOST,
    FLAG,
    SYS_FLAG,
    RECONSUME_TIMES,
    DELIVERY_ATTEMPT,
    KINDS,
};

typedef struct {
    byte *start;
    int64_t used, room;
} Buffer;

typedef struct {
    int64_t kind;
    Buffer validity, buffers[BUFFERS_MAX]; /* a bit for each row, if any is null; and the rest */
    int64_t nulls;
} Column;

typedef struct {
    const byte *start;
    int64_t size;
} Piece;

typedef struct {
    Piece name, value;
} Pair;

/* All that is known of one record. */
typedef struct {
    const byte *at;
    Parts parts;
    Pair pairs[PAIRS_MAX];
    int pair_count;
    byte offset_id[ID_BYTES];
    int64_t row;
} Record;

typedef struct {
    PyObject *topic_of, *host_of; /* what makes text of bytes */
    Kept topic, born_host, store_host;
} Texts;

/* The room is what was thought to be enough: if it is not, the record is not plain. */
static int add_bytes(Buffer *buffer, const void *data, int64_t size) {
    if (size > buffer->room - buffer->used) {
        return 0;
    }
    memcpy(buffer->start + buffer->used, data, (size_t)size);
    buffer->used += size;
    return 1;
}

/* As the machine writes them: that is Arrow's way. */
static int add_i32(Buffer *buffer, int64_t value) {
    int32_t number = (int32_t)value;
    return add_bytes(buffer, &number, sizeof number);
}

static int add_i64(Buffer *buffer, int64_t value) { return add_bytes(buffer, &value, sizeof value); }

/* Texts and bytes: first where each ends, then the bytes. */
static int add_piece(Buffer *ends, const byte *start, int64_t size) {
    Buffer *data = ends + 1;
    return add_bytes(data, start, size) && add_i32(ends, data->used);
}

static int add_kept(Buffer *ends, Kept *kept, const byte *start, int64_t size, PyObject *unpack) {
    PyObject *value = keep(kept, start, size, unpack);
    const byte *text;
    Py_ssize_t text_size;
    int is_added = value != NULL && take_text(value, &text, &text_size) &&
                   add_piece(ends, text, text_size);
    Py_XDECREF(value);
    return is_added;
}

/* The next row has a value, or none. */
static int add_validity(Column *column, int64_t row, int is_valid) {
    if (row % 8 == 0 && !add_bytes(&column->validity, "", 1)) {
        return 0;
    }
    byte *last = column->validity.start + row / 8;
    *last = (byte)(*last | (is_valid ? 1 << row % 8 : 0));
    column->nulls += !is_valid;
    return 1;
}

static int add_timestamp(Buffer *buffer, int64_t ms) {
    return ms <= TIMESTAMP_MS_MAX - 1 && ms >= 1 - TIMESTAMP_MS_MAX && add_i64(buffer, ms * 1000);
}

static int is_same(Piece piece, const void *start, int64_t size) {
    return piece.size == size && memcmp(piece.start, start, (size_t)size) == 0;
}

/* All pairs; 0 unless each has a name of its own and a value, and all are UTF-8. */
static int split_pairs(Record *record) {
    const byte *at = record->parts.properties, *end = at + record->parts.properties_size;
    byte all = 0;
    for (const byte *each = at; each < end; each++) {
        all |= *each;
    }
    if (all & 0x80) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)(end - at), NULL);
        if (text == NULL) {
            return 0;
        }
        Py_DECREF(text);
    }
    record->pair_count = 0;
    while (at < end) {
        const byte *close = memchr(at, 2, (size_t)(end - at));
        const byte *divider = close ? memchr(at, 1, (size_t)(close - at)) : NULL;
        if (divider == NULL || divider == at || divider + 1 == close ||
            record->pair_count == PAIRS_MAX) {
            return 0;
        }
        Pair pair = {{at, divider - at}, {divider + 1, close - divider - 1}};
        for (int n = 0; n < record->pair_count; n++) {
            if (is_same(record->pairs[n].name, pair.name.start, pair.name.size)) {
                return 0;
            }
        }
        record->pairs[record->pair_count++] = pair;
        at = close + 1;
    }
    return 1;
}

/* What it has for a name; nothing: of size 0, which no value is. */
static Piece value_of(const Record *record, const char *name) {
    int64_t size = (int64_t)strlen(name);
    for (int n = 0; n < record->pair_count; n++) {
        if (is_same(record->pairs[n].name, name, size)) {
            return record->pairs[n].value;
        }
    }
    Piece none = {(const byte *)"", 0};
    return none;
}

static void tell_offset_id(Record *record) {
    byte packed[16], *at = record->offset_id;
    memcpy(packed, record->parts.store_host, 8);
    memcpy(packed + 8, record->at + 28, 8);
    for (int n = 0; n < 16; n++) {
        *at++ = (byte)"0123456789ABCDEF"[packed[n] >> 4];
        *at++ = (byte)"0123456789ABCDEF"[packed[n] & 15];
    }
}

/* Lists: where each ends among the texts, which follow. */
static int add_keys(Column *column, Piece keys) {
    Buffer *ends = column->buffers, *texts = ends + 1;
    while (keys.size) {
        const byte *space = memchr(keys.start, ' ', (size_t)keys.size);
        int64_t size = space ? space - keys.start : keys.size;
        if (size && !add_piece(texts, keys.start, size)) {
            return 0;
        }
        keys.start += size + (space != NULL);
        keys.size -= size + (space != NULL);
    }
    return add_i32(ends, texts->used / 4 - 1);
}

static int add_properties(Column *column, const Record *record) {
    Buffer *ends = column->buffers, *names = ends + 1, *values = ends + 3;
    for (int n = 0; n < record->pair_count; n++) {
        const Pair *pair = &record->pairs[n];
        if (!add_piece(names, pair->name.start, pair->name.size) ||
            !add_piece(values, pair->value.start, pair->value.size)) {
            return 0;
        }
    }
    return add_i32(ends, names->used / 4 - 1);
}

static int add_body(Buffer *ends, const Record *record) {
    const Parts *parts = &record->parts;
    uint32_t crc = crc32_of(parts->body, (size_t)parts->body_size, 0) & 0x7FFFFFFF;
    return crc == get_u32(record->at + 8) && add_piece(ends, parts->body, parts->body_size);
}

/* The row of a record; 0 if it is not plain. */
static int add_value(Column *column, const Record *record, Texts *texts) {
    const Parts *parts = &record->parts;
    const byte *at = record->at;
    Buffer *buffers = column->buffers;
    Piece value;
    int64_t times = get_i32(parts->store_host + parts->store_host_size);
    switch (column->kind) {
    case TOPIC:
        return add_kept(buffers, &texts->topic, parts->topic, parts->topic_size, texts->topic_of);
    case QUEUE_ID: return add_i32(buffers, get_i32(at + 12));
    case QUEUE_OFFSET: return add_i64(buffers, get_i64(at + 20));
    case MESSAGE_ID:
        value = value_of(record, "UNIQ_KEY");
        return value.size ? add_piece(buffers, value.start, value.size)
                          : add_piece(buffers, record->offset_id, ID_BYTES);
    case OFFSET_MESSAGE_ID:
        return add_piece(buffers, record->offset_id, ID_BYTES);
    case TAGS:
        value = value_of(record, "TAGS");
        return add_validity(column, record->row, value.size > 0) &&
               add_piece(buffers, value.start, value.size);
    case KEYS: return add_keys(column, value_of(record, "KEYS"));
    case BODY: return add_body(buffers, record);
    case PROPERTIES: return add_properties(column, record);
    case BORN_TIMESTAMP: return add_timestamp(buffers, get_i64(at + 40));
    case STORE_TIMESTAMP: return add_timestamp(buffers, get_i64(parts->store_timestamp));
    case BORN_HOST:
        return add_kept(buffers, &texts->born_host, parts->born_host, parts->born_host_size,
                        texts->host_of);
    case STORE_HOST:
        return add_kept(buffers, &texts->store_host, parts->store_host, parts->store_host_size,
                        texts->host_of);
    case FLAG: return add_i32(buffers, get_i32(at + 16));
    case SYS_FLAG: return add_i32(buffers, get_i32(at + 36));
    case RECONSUME_TIMES: return add_i32(buffers, times);
    case DELIVERY_ATTEMPT:
        return times < INT32_MAX && add_validity(column, record->row, times > 0) &&
               add_i32(buffers, times > 0 ? times + 1 : 0);
    default: return 0;
    }
}

/* What all records have together. */
typedef struct {
    int64_t rows, bodies, topics, properties;
} Sums;

/* 0 if sizes do not lead from record to record up to the end. */
static int add_up(const byte *at, int64_t left, Sums *sums) {
    Parts parts;
    for (; left; at += parts.size, left -= parts.size, sums->rows++) {
        if (!split_record(at, left, &parts)) {
            return 0;
        }
        sums->bodies += parts.body_size;
        sums->topics += parts.topic_size;
        sums->properties += parts.properties_size;
    }
    return 1;
}

/* How much room the buffers of a column need at most. Those of texts and lists begin with where the
   first one begins. */
static void ask_for_room(Column *column, const Sums *sums) {
    int64_t ends = 4 * (sums->rows + 1), pairs = sums->properties / 4; /* of four bytes, at least */
    switch (column->kind) {
    case QUEUE_OFFSET:
    case BORN_TIMESTAMP:
    case STORE_TIMESTAMP: column->buffers[0].room = 8 * sums->rows; return;
    case DELIVERY_ATTEMPT: column->validity.room = sums->rows / 8 + 1; /* fall through */
    case QUEUE_ID:
    case FLAG:
    case SYS_FLAG:
    case RECONSUME_TIMES: column->buffers[0].room = 4 * sums->rows; return;
    default: column->buffers[0].room = ends;
    }
    Buffer *rest = column->buffers + 1;
    switch (column->kind) {
    case TOPIC: rest->room = sums->topics; return; /* less, without a namespace */
    case BODY: rest->room = sums->bodies; return;
    case MESSAGE_ID: rest->room = sums->properties + ID_BYTES * sums->rows; return;
    case OFFSET_MESSAGE_ID: rest->room = ID_BYTES * sums->rows; return;
    case BORN_HOST:
    case STORE_HOST: rest->room = HOST_BYTES_MAX * sums->rows; return;
    case TAGS:
        column->validity.room = sums->rows / 8 + 1;
        rest->room = sums->properties;
        return;
    case KEYS:
        rest[0].room = 4 * (sums->properties / 2 + 1);
        rest[1].room = sums->properties;
        return;
    case PROPERTIES:
        rest[0].room = rest[2].room = 4 * (pairs + 1);
        rest[1].room = rest[3].room = sums->properties;
        return;
    default: return;
    }
}

static int64_t lay(Buffer *buffer, byte *block, int64_t at) {
    buffer->start = block + at;
    return at + (buffer->room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Give the buffers their places in a block; how large that has to be. */
static int64_t lay_all(Column *columns, Py_ssize_t count, byte *block) {
    int64_t at = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        at = lay(&columns[n].validity, block, at);
        for (int each = 0; each < BUFFERS_MAX; each++) {
            at = lay(&columns[n].buffers[each], block, at);
        }
    }
    return at;
}

static int begin(Column *column) {
    Buffer *buffers = column->buffers;
    switch (column->kind) {
    case PROPERTIES:
        return add_i32(buffers, 0) && add_i32(buffers + 1, 0) && add_i32(buffers + 3, 0);
    case KEYS: return add_i32(buffers, 0) && add_i32(buffers + 1, 0);
    case TOPIC:
    case MESSAGE_ID:
    case OFFSET_MESSAGE_ID:
    case TAGS:
    case BODY:
    case BORN_HOST:
    case STORE_HOST: return add_i32(buffers, 0);
    default: return 1;
    }
}

/* All records of an answer; 0 if one of them is not plain. */
static int add_answer(const byte *at, int64_t left, Column *columns, Py_ssize_t count,
                      int needs_pairs, Texts *texts, int64_t *rows) {
    Record record;
    record.pair_count = 0;
    for (; left; at += record.parts.size, left -= record.parts.size, ++*rows) {
        record.at = at;
        record.row = *rows;
        if (!split_record(at, left, &record.parts) ||
            get_u32(at + 36) & (NOT_PLAIN | 0x30) || /* or hosts of IPv6 */
            (needs_pairs && !split_pairs(&record))) {
            return 0;
        }
        tell_offset_id(&record);
        for (Py_ssize_t n = 0; n < count; n++) {
            if (!add_value(&columns[n], &record, texts)) {
                return 0;
            }
        }
    }
    return 1;
}

static int fill(PyObject *answers, Column *columns, Py_ssize_t count, int needs_pairs, Texts *texts) {
    const byte *data;
    Py_ssize_t size;
    int64_t rows = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        if (!begin(&columns[n])) {
            return 0;
        }
    }
    for (Py_ssize_t n = 0; n < PyList_Size(answers); n++) {
        if (!take_bytes(PyList_GetItem(answers, n), &data, &size) ||
            !add_answer(data, size, columns, count, needs_pairs, texts, &rows)) {
            return 0;
        }
    }
    return 1;
}

static int tell_place(PyObject *told, int at, const Buffer *buffer, const byte *block) {
    PyObject *place = Py_BuildValue("LL", (long long)(buffer->start - block), (long long)buffer->used);
    return place != NULL && PyTuple_SetItem(told, at, place) == 0;
}

/* Of each column how many rows are null, and the place and size of its buffers in the block: of that
   which tells what is null, and of all others. */
static PyObject *tell_all(const Column *columns, Py_ssize_t count, const byte *block) {
    PyObject *all = PyList_New(count);
    for (Py_ssize_t n = 0; all != NULL && n < count; n++) {
        PyObject *told = PyTuple_New(2 + BUFFERS_MAX), *nulls;
        nulls = PyLong_FromLongLong(columns[n].nulls);
        int is_told = told != NULL && nulls != NULL && PyTuple_SetItem(told, 0, nulls) == 0 &&
                      tell_place(told, 1, &columns[n].validity, block);
        for (int each = 0; is_told && each < BUFFERS_MAX; each++) {
            is_told = tell_place(told, 2 + each, &columns[n].buffers[each], block);
        }
        if (is_told) {
            PyList_SetItem(all, n, told);
        } else {
            Py_XDECREF(told);
            Py_CLEAR(all);
        }
    }
    return all;
}

/* read_columns(answers, kinds, topic_of, host_of, block_of): how many records these answers have, the
   block that `block_of` gave for their columns, told how many bytes it must have, and what of it each
   column is (`tell_all`); None unless all records are whole and plain. */
static PyObject *read_columns(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given != 5 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) ||
        PyTuple_Size(args[1]) > COLUMNS_MAX) {
        PyErr_SetString(PyExc_TypeError,
                        "read_columns(answers, kinds, topic_of, host_of, block_of)");
        return NULL;
    }
    Column columns[COLUMNS_MAX];
    memset(columns, 0, sizeof columns);
    Texts texts = {args[2], args[3], {0}, {0}, {0}};
    Sums sums = {0};
    Py_ssize_t count = PyTuple_Size(args[1]), size, bytes = 0;
    const byte *data;
    int needs_pairs = 0;
    for (Py_ssize_t n = 0; n < PyList_Size(args[0]); n++) {
        if (!take_bytes(PyList_GetItem(args[0], n), &data, &size) ||
            size > ANSWERS_BYTES_MAX - bytes || !add_up(data, size, &sums)) {
            Py_RETURN_NONE;
        }
        bytes += size;
    }
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t *kind = &columns[n].kind;
        if (!take_number(PyTuple_GetItem(args[1], n), 0, KINDS - 1, kind)) {
            Py_RETURN_NONE;
        }
        needs_pairs |= *kind == MESSAGE_ID || *kind == TAGS || *kind == KEYS || *kind == PROPERTIES;
        ask_for_room(&columns[n], &sums);
    }
    int64_t block_size = lay_all(columns, count, NULL);
    PyObject *block = PyObject_CallFunction(args[4], "L", (long long)block_size), *told = NULL;
    Py_buffer view;
    if (block == NULL || PyObject_GetBuffer(block, &view, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(block);
        return NULL;
    }
    if (view.len >= block_size) {
        lay_all(columns, count, view.buf);
        if (fill(args[0], columns, count, needs_pairs, &texts)) {
            told = tell_all(columns, count, view.buf);
        }
    }
    Py_XDECREF(texts.topic.value);
    Py_XDECREF(texts.born_host.value);
    Py_XDECREF(texts.store_host.value);
    PyBuffer_Release(&view);
    if (told == NULL) {
        PyErr_Clear();
        Py_DECREF(block);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("LNN", (long long)sums.rows, block, told);
}

PyMethodDef column_methods[] = {
    {"read_columns", (PyCFunction)(void (*)(void))read_columns, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
