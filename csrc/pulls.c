/* Answers to pulls, read at once with the records they bring. The twins are FrameDecoder.next_command
   in rocketpipe/wire/frame.py, PullAnswer in wire/requests/reading.py and record_starts in
   wire/record.py: whatever is not plain takes the way through these. */

#include "header.h"

#define QUEUE_OFFSET_AT 20
#define IS_ANSWER 1
#define FOUND 0

typedef struct {
    int64_t broker_id, next_offset, min_offset, max_offset;
} Offsets;

static int read_field(Reader *reader, Text name, void *fields) {
    Offsets *offsets = fields;
    Text value;
    int64_t ignored;
    if (!read_text(reader, &value)) {
        return 0;
    }
    if (is_named(name, "nextBeginOffset")) {
        return number_of(value, INT64_MAX, &offsets->next_offset);
    }
    if (is_named(name, "minOffset")) {
        return number_of(value, INT64_MAX, &offsets->min_offset);
    }
    if (is_named(name, "maxOffset")) {
        return number_of(value, INT64_MAX, &offsets->max_offset);
    }
    if (is_named(name, "suggestWhichBrokerId")) {
        return number_of(value, INT64_MAX, &offsets->broker_id);
    }
    if (is_named(name, "offsetDelta") || is_named(name, "topicSysFlag") ||
        is_named(name, "groupSysFlag") || is_named(name, "forbiddenType")) {
        return number_of(value, INT32_MAX, &ignored); /* the twin refuses what is no number */
    }
    return 1;
}

/* Whether it is all of the header of an answer that found messages. */
static int read_header(Reader *reader, Envelope *envelope, Offsets *offsets) {
    return read_envelope(reader, envelope, read_field, offsets) && offsets->broker_id >= 0 &&
           offsets->next_offset >= 0 && offsets->min_offset >= 0 && offsets->max_offset >= 0;
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
        Envelope envelope = {{FOUND, FOUND}, IS_ANSWER, 1, -1, -1};
        Offsets offsets = {-1, -1, -1, -1};
        const byte *body = reader.end;
        int64_t records = read_header(&reader, &envelope, &offsets) ? count_records(body, end) : 0;
        if (records > 0) {
            found = Py_BuildValue("LLLLLLLLy#", (long long)(end - data), (long long)envelope.opaque,
                                  (long long)offsets.broker_id, (long long)offsets.next_offset,
                                  (long long)offsets.min_offset, (long long)offsets.max_offset,
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
