/* The header of a pull, read at once. The twins are FrameDecoder.next_command in
   rocketpipe/wire/frame.py and read_pull in broker/pull_checks.py. */

#include "header.h"

#define PULL_MESSAGE 11
#define LITE_PULL_MESSAGE 361

typedef struct {
    int64_t queue_id, offset, count_max, sys_flag, commit_offset, suspend_ms, sub_version, bytes_max;
    Text group, topic, subscription, expression_type; /* no start: not there */
} Pull;

static int take_text_once(Text value, Text *field) {
    int is_first = field->start == NULL;
    *field = value;
    return is_first;
}

static int take_number_once(Text value, int64_t most, int64_t *field) {
    return *field < 0 && number_of(value, most, field);
}

static int read_field(Reader *reader, Text name, void *fields) {
    Pull *pull = fields;
    Text value;
    if (!read_text(reader, &value)) {
        return 0;
    }
    if (is_named(name, "consumerGroup")) {
        return take_text_once(value, &pull->group);
    }
    if (is_named(name, "topic")) {
        return take_text_once(value, &pull->topic);
    }
    if (is_named(name, "queueId")) {
        return take_number_once(value, INT32_MAX, &pull->queue_id);
    }
    if (is_named(name, "queueOffset")) {
        return take_number_once(value, INT64_MAX, &pull->offset);
    }
    if (is_named(name, "maxMsgNums")) {
        return take_number_once(value, INT32_MAX, &pull->count_max);
    }
    if (is_named(name, "sysFlag")) {
        return take_number_once(value, INT32_MAX, &pull->sys_flag);
    }
    if (is_named(name, "commitOffset")) {
        return take_number_once(value, INT64_MAX, &pull->commit_offset);
    }
    if (is_named(name, "suspendTimeoutMillis")) {
        return take_number_once(value, INT64_MAX, &pull->suspend_ms);
    }
    if (is_named(name, "subVersion")) {
        return take_number_once(value, INT64_MAX, &pull->sub_version);
    }
    if (is_named(name, "maxMsgBytes")) {
        return take_number_once(value, INT32_MAX, &pull->bytes_max);
    }
    if (is_named(name, "subscription")) {
        return take_text_once(value, &pull->subscription);
    }
    if (is_named(name, "expressionType")) {
        return take_text_once(value, &pull->expression_type);
    }
    return 1;
}

/* Whether it is all of the header of a pull that wants an answer. */
static int read_header(Reader *reader, Envelope *envelope, Pull *pull) {
    return read_envelope(reader, envelope, read_field, pull) && pull->group.start &&
           pull->topic.start && pull->queue_id >= 0 && pull->offset >= 0 && pull->count_max >= 0 &&
           pull->sys_flag >= 0 && pull->commit_offset >= 0 && pull->suspend_ms >= 0 &&
           pull->sub_version >= 0;
}

/* read_pull_request(data, start, frame_bytes_max): where the frame ends, its code and opaque, and what
   pull_checks.Pull has; None unless a whole frame of the plain kind is there. */
static PyObject *read_pull_request(PyObject *Py_UNUSED(module), PyObject *const *args,
                                   Py_ssize_t count) {
    Py_buffer view;
    int64_t start, bytes_max;
    if (count != 3 || !take_number(args[1], 0, PY_SSIZE_T_MAX, &start) ||
        !take_number(args[2], 0, INT32_MAX, &bytes_max)) {
        PyErr_SetString(PyExc_TypeError, "read_pull_request(data, start, frame_bytes_max)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *found = NULL;
    const byte *data = view.buf;
    Reader reader;
    Text none = {NULL, 0};
    Envelope envelope = {{PULL_MESSAGE, LITE_PULL_MESSAGE}, 0, 0, -1, -1};
    Pull pull = {-1, -1, -1, -1, -1, -1, -1, -1, none, none, none, none};
    const byte *end =
        start < view.len ? whole_frame(data + start, view.len - start, bytes_max, &reader) : NULL;
    if (end != NULL && read_header(&reader, &envelope, &pull)) {
        PyObject *limit = Py_None;
        if (pull.bytes_max >= 0) {
            limit = PyLong_FromLongLong(pull.bytes_max);
        } else {
            Py_INCREF(limit);
        }
        /* Where there is no text, z# makes None of it. */
        found = Py_BuildValue(
            "LLL(s#s#LLLLLLLNz#z#)", (long long)(end - data), (long long)envelope.code,
            (long long)envelope.opaque, (const char *)pull.group.start, (Py_ssize_t)pull.group.size,
            (const char *)pull.topic.start, (Py_ssize_t)pull.topic.size, (long long)pull.queue_id,
            (long long)pull.offset, (long long)pull.count_max, (long long)pull.sys_flag,
            (long long)pull.commit_offset, (long long)pull.suspend_ms, (long long)pull.sub_version,
            limit, (const char *)pull.subscription.start, (Py_ssize_t)pull.subscription.size,
            (const char *)pull.expression_type.start, (Py_ssize_t)pull.expression_type.size);
    }
    PyBuffer_Release(&view);
    if (found == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return found;
}

PyMethodDef pull_request_methods[] = {
    {"read_pull_request", (PyCFunction)(void (*)(void))read_pull_request, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
