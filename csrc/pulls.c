/* Answers to pulls, read at once with the records they bring. The twins are FrameDecoder.next_command
   in rocketpipe/wire/frame.py, PullAnswer in wire/requests/reading.py and record_starts in
   wire/record.py: whatever is not plain takes the way through these. */

#include "header.h"

#define QUEUE_OFFSET_AT 20
#define IS_ANSWER 1

typedef struct {
    int64_t code, flag, opaque, version, broker_id, next_offset, min_offset, max_offset;
    int has_fields;
} Header;

static int read_field(Reader *reader, Header *header) {
    Text name, value;
    int64_t ignored;
    if (!read_text(reader, &name) || !is_next(reader, ':') || !read_text(reader, &value)) {
        return 0;
    }
    if (is_named(name, "nextBeginOffset")) {
        return number_of(value, INT64_MAX, &header->next_offset);
    }
    if (is_named(name, "minOffset")) {
        return number_of(value, INT64_MAX, &header->min_offset);
    }
    if (is_named(name, "maxOffset")) {
        return number_of(value, INT64_MAX, &header->max_offset);
    }
    if (is_named(name, "suggestWhichBrokerId")) {
        return number_of(value, INT64_MAX, &header->broker_id);
    }
    if (is_named(name, "offsetDelta") || is_named(name, "topicSysFlag") ||
        is_named(name, "groupSysFlag") || is_named(name, "forbiddenType")) {
        return number_of(value, INT32_MAX, &ignored); /* the twin refuses what is no number */
    }
    return 1;
}

static int read_fields(Reader *reader, Header *header) {
    if (!is_next(reader, '{') || header->has_fields) {
        return 0;
    }
    header->has_fields = 1;
    do {
        if (!read_field(reader, header)) {
            return 0;
        }
    } while (is_next(reader, ','));
    return is_next(reader, '}');
}

static int read_member(Reader *reader, Header *header) {
    Text name, ignored;
    if (!read_text(reader, &name) || !is_next(reader, ':')) {
        return 0;
    }
    if (is_named(name, "code")) {
        return read_plain_number(reader, &header->code);
    }
    if (is_named(name, "flag")) {
        return read_plain_number(reader, &header->flag);
    }
    if (is_named(name, "opaque")) {
        return read_plain_number(reader, &header->opaque);
    }
    if (is_named(name, "version")) {
        return read_plain_number(reader, &header->version);
    }
    if (is_named(name, "extFields")) {
        return read_fields(reader, header);
    }
    return (is_named(name, "language") || is_named(name, "remark") ||
            is_named(name, "serializeTypeCurrentRPC")) &&
           read_text(reader, &ignored);
}

/* Whether it is all of the header of an answer that found messages. */
static int read_header(Reader *reader, Header *header) {
    if (!is_next(reader, '{')) {
        return 0;
    }
    do {
        if (!read_member(reader, header)) {
            return 0;
        }
    } while (is_next(reader, ','));
    return is_next(reader, '}') && reader->at == reader->end && header->code == 0 &&
           header->flag == IS_ANSWER && header->opaque >= 0 && header->broker_id >= 0 &&
           header->next_offset >= 0 && header->min_offset >= 0 && header->max_offset >= 0;
}

/* How many records fill these bytes, by their sizes; 0 unless each has the offset after the one
   before. */
static int64_t count_records(const byte *at, const byte *end) {
    int64_t count = 0, expected = 0;
    while (end - at >= RECORD_BYTES_MIN) {
        int64_t size = get_i32(at), offset = get_i64(at + QUEUE_OFFSET_AT);
        if (size < RECORD_BYTES_MIN || size > end - at || offset < 0 || offset == INT64_MAX ||
            (count > 0 && offset != expected)) {
            return 0;
        }
        expected = offset + 1;
        count++;
        at += size;
    }
    return at == end ? count : 0;
}

/* read_pull(data, start, frame_bytes_max): where the frame ends, opaque, suggested broker, next, least
   and greatest offset, offset of the first record, how many there are, and the records; None unless
   there is a whole answer of the plain kind, with records of offsets without a gap. */
static PyObject *read_pull(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    int64_t start, bytes_max;
    if (count != 3 || !take_number(args[1], 0, PY_SSIZE_T_MAX, &start) ||
        !take_number(args[2], 0, INT32_MAX, &bytes_max)) {
        PyErr_SetString(PyExc_TypeError, "read_pull(data, start, frame_bytes_max)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *found = NULL;
    const byte *data = view.buf;
    Reader reader;
    const byte *end =
        start < view.len ? whole_frame(data + start, view.len - start, bytes_max, &reader) : NULL;
    if (end != NULL) {
        Header header = {-1, -1, -1, -1, -1, -1, -1, -1, 0};
        const byte *body = reader.end;
        int64_t records = read_header(&reader, &header) ? count_records(body, end) : 0;
        if (records > 0) {
            found = Py_BuildValue("LLLLLLLLy#", (long long)(end - data), (long long)header.opaque,
                                  (long long)header.broker_id, (long long)header.next_offset,
                                  (long long)header.min_offset, (long long)header.max_offset,
                                  (long long)get_i64(body + QUEUE_OFFSET_AT), (long long)records,
                                  (const char *)body, (Py_ssize_t)(end - body));
        }
    }
    PyBuffer_Release(&view);
    if (found == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return found;
}

PyMethodDef pull_methods[] = {
    {"read_pull", (PyCFunction)(void (*)(void))read_pull, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
