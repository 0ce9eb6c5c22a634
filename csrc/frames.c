/* Frames with a JSON header, read and written: the twin is rocketpipe/wire/frame.py. */

#include "header.h"
#include <stdio.h>

#define EXT_FIELD_BYTES_MAX (1 << 20) /* longer ones are rare enough to be the twin's */

/* The string whose opening quote has been read. */
static PyObject *read_string(Reader *reader) {
    const byte *start = reader->at, *at = start;
    while (at < reader->end && *at != '"' && *at != '\\' && *at >= 0x20) {
        at++;
    }
    if (at >= reader->end || *at < 0x20) {
        return NULL;
    }
    if (*at == '"') {
        reader->at = at + 1;
        return PyUnicode_DecodeUTF8((const char *)start, at - start, NULL);
    }
    /* With escapes it is copied; every one of them is longer than what it stands for. */
    byte room[1024], *copy = room, *out;
    if (reader->end - start > (Py_ssize_t)sizeof room) {
        copy = PyMem_Malloc((size_t)(reader->end - start));
        if (copy == NULL) {
            return NULL;
        }
    }
    PyObject *text = NULL;
    out = put_bytes(copy, start, (size_t)(at - start));
    reader->at = at;
    while (reader->at < reader->end && *reader->at >= 0x20) {
        byte next = *reader->at++;
        if (next == '"') {
            text = PyUnicode_DecodeUTF8((const char *)copy, out - copy, NULL);
            break;
        }
        if (next != '\\') {
            *out++ = next;
        } else if ((out = unescape(reader, out)) == NULL) {
            break;
        }
    }
    if (copy != room) {
        PyMem_Free(copy);
    }
    return text;
}

static int read_number(Reader *reader, int64_t *number) {
    int is_negative = is_next(reader, '-');
    const byte *start = reader->at;
    int64_t value = 0;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        if (reader->at - start >= 10) {
            return 0;
        }
        value = value * 10 + (*reader->at++ - '0');
    }
    if (reader->at == start || (*start == '0' && reader->at - start > 1)) {
        return 0;
    }
    *number = is_negative ? -value : value;
    return *number >= INT32_MIN && *number <= INT32_MAX;
}

/* An object of nothing but texts, whose opening brace has been read. */
static PyObject *read_texts(Reader *reader) {
    PyObject *texts = PyDict_New();
    if (texts == NULL || is_next(reader, '}')) {
        return texts;
    }
    do {
        PyObject *name = NULL, *value = NULL;
        int is_done = is_next(reader, '"') && (name = read_string(reader)) != NULL &&
                      is_next(reader, ':') && is_next(reader, '"') &&
                      (value = read_string(reader)) != NULL &&
                      PyDict_SetItem(texts, name, value) == 0;
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (!is_done) {
            break;
        }
        if (is_next(reader, '}')) {
            return texts;
        }
    } while (is_next(reader, ','));
    Py_DECREF(texts);
    return NULL;
}

typedef struct {
    int64_t code, flag, opaque, version;
    PyObject *ext_fields, *remark, *language;
} Header;

static int read_text_member(Reader *reader, PyObject **member) {
    PyObject *text = is_next(reader, '"') ? read_string(reader) : NULL;
    if (text == NULL) {
        return 0;
    }
    Py_XDECREF(*member); /* named twice: the last one counts */
    *member = text;
    return 1;
}

static int read_member(Reader *reader, Header *header) {
    if (!is_next(reader, '"')) {
        return 0;
    }
    Text name = {reader->at, 0};
    const byte *quote = memchr(name.start, '"', (size_t)(reader->end - name.start));
    if (quote == NULL) {
        return 0;
    }
    name.size = (size_t)(quote - name.start);
    reader->at = quote + 1;
    if (!is_next(reader, ':')) {
        return 0;
    }
    if (is_named(name, "code")) {
        return read_number(reader, &header->code);
    }
    if (is_named(name, "flag")) {
        return read_number(reader, &header->flag);
    }
    if (is_named(name, "opaque")) {
        return read_number(reader, &header->opaque);
    }
    if (is_named(name, "version")) {
        return read_number(reader, &header->version);
    }
    if (is_named(name, "remark")) {
        return read_text_member(reader, &header->remark);
    }
    if (is_named(name, "language")) {
        return read_text_member(reader, &header->language);
    }
    if (is_named(name, "extFields")) {
        PyObject *texts = is_next(reader, '{') ? read_texts(reader) : NULL;
        if (texts == NULL) {
            return 0;
        }
        Py_XDECREF(header->ext_fields);
        header->ext_fields = texts;
        return 1;
    }
    if (is_named(name, "serializeTypeCurrentRPC")) {
        PyObject *ignored = NULL;
        int is_text = read_text_member(reader, &ignored);
        Py_XDECREF(ignored);
        return is_text;
    }
    return 0;
}

static int read_header(Reader *reader, Header *header) {
    if (!is_next(reader, '{')) {
        return 0;
    }
    do {
        if (!read_member(reader, header)) {
            return 0;
        }
    } while (is_next(reader, ','));
    if (!is_next(reader, '}') || reader->at != reader->end) {
        return 0;
    }
    if (header->ext_fields == NULL) {
        header->ext_fields = PyDict_New();
    }
    return header->ext_fields != NULL;
}

/* read_frame(data, start, frame_bytes_max): where the frame ends, code, fields, body, remark, opaque,
   flag, language (None: not said) and version; None unless a whole one of the plain kind is there. */
static PyObject *read_frame(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    int64_t start, bytes_max;
    if (count != 3 || !take_number(args[1], 0, PY_SSIZE_T_MAX, &start) ||
        !take_number(args[2], 0, INT32_MAX, &bytes_max)) {
        PyErr_SetString(PyExc_TypeError, "read_frame(data, start, frame_bytes_max)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *found = NULL;
    Header header = {0, 0, 0, 0, NULL, NULL, NULL};
    const byte *data = view.buf;
    Reader reader;
    const byte *end =
        start < view.len ? whole_frame(data + start, view.len - start, bytes_max, &reader) : NULL;
    if (end != NULL && read_header(&reader, &header)) {
        const byte *body = reader.end;
        found = Py_BuildValue("LiOy#OiiOi", (long long)(end - data), (int)header.code,
                              header.ext_fields, (const char *)body, (Py_ssize_t)(end - body),
                              header.remark ? header.remark : Py_None, (int)header.opaque,
                              (int)header.flag, header.language ? header.language : Py_None,
                              (int)header.version);
    }
    Py_XDECREF(header.ext_fields);
    Py_XDECREF(header.remark);
    Py_XDECREF(header.language);
    PyBuffer_Release(&view);
    if (found == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return found;
}

/* Writing. */

static int needs_escape(byte c) { return c < 0x20 || c == '"' || c == '\\'; }

static char short_escape(byte c) {
    switch (c) {
    case '"':
    case '\\': return (char)c;
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

/* How many bytes the quoted text takes, quotes included. */
static int64_t quoted_bytes(const byte *text, Py_ssize_t size) {
    Py_ssize_t escapes = 0;
    for (Py_ssize_t n = 0; n < size; n++) {
        escapes += (text[n] < 0x20) | (text[n] == '"') | (text[n] == '\\');
    }
    int64_t bytes = 2 + size;
    for (Py_ssize_t n = 0; escapes; n++) {
        if (needs_escape(text[n])) {
            bytes += short_escape(text[n]) ? 1 : 5;
            escapes--;
        }
    }
    return bytes;
}

static byte *put_quoted(byte *at, const byte *text, Py_ssize_t size, int64_t bytes) {
    *at++ = '"';
    if (bytes == size + 2) {
        at = put_bytes(at, text, (size_t)size);
    } else {
        for (Py_ssize_t n = 0; n < size; n++) {
            if (!needs_escape(text[n])) {
                *at++ = text[n];
                continue;
            }
            char escape = short_escape(text[n]);
            *at++ = '\\';
            if (escape) {
                *at++ = (byte)escape;
            } else {
                at = put_bytes(at, "u00", 3);
                *at++ = (byte)"0123456789abcdef"[text[n] >> 4];
                *at++ = (byte)"0123456789abcdef"[text[n] & 15];
            }
        }
    }
    *at++ = '"';
    return at;
}

static int take_field(PyObject *object, const byte **data, Py_ssize_t *size) {
    return take_text(object, data, size) && *size <= EXT_FIELD_BYTES_MAX;
}

/* write_frame(code, flag, opaque, version, language, remark, ext_fields, body): the frame; None if it
   is not plain. Members stand in alphabetical order, as Java's. */
static PyObject *write_frame(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 8 || !PyDict_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError,
                        "write_frame(code, flag, opaque, version, language, remark, fields, body)");
        return NULL;
    }
    int64_t numbers[4];
    for (int n = 0; n < 4; n++) {
        if (!take_number(args[n], INT32_MIN, INT32_MAX, &numbers[n])) {
            Py_RETURN_NONE;
        }
    }
    const byte *language, *remark = NULL, *body, *name, *value;
    Py_ssize_t language_size, remark_size = 0, body_size, name_size, value_size, at = 0;
    PyObject *key, *field, *ext_fields = args[6];
    if (!take_field(args[4], &language, &language_size) || !take_bytes(args[7], &body, &body_size) ||
        (args[5] != Py_None && !take_field(args[5], &remark, &remark_size))) {
        Py_RETURN_NONE;
    }
    int64_t fields_bytes = 0;
    while (PyDict_Next(ext_fields, &at, &key, &field)) {
        if (!take_field(key, &name, &name_size) || !take_field(field, &value, &value_size)) {
            Py_RETURN_NONE;
        }
        fields_bytes += quoted_bytes(name, name_size) + quoted_bytes(value, value_size) + 2;
    }
    char head[64], middle[64], opaque[32], tail[80];
    int head_size = snprintf(head, sizeof head, "{\"code\":%d,", (int)numbers[0]);
    int middle_size = snprintf(middle, sizeof middle, "\"flag\":%d,\"language\":", (int)numbers[1]);
    int opaque_size = snprintf(opaque, sizeof opaque, ",\"opaque\":%d,", (int)numbers[2]);
    int tail_size = snprintf(tail, sizeof tail, "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}",
                             (int)numbers[3]);
    int64_t language_bytes = quoted_bytes(language, language_size);
    int64_t remark_bytes = remark ? quoted_bytes(remark, remark_size) : 0;
    int64_t header_bytes = head_size + middle_size + language_bytes + opaque_size + tail_size;
    if (fields_bytes) {
        header_bytes += fields_bytes - 1 + 15; /* "extFields":{}, and no comma after the last */
    }
    if (remark) {
        header_bytes += 9 + remark_bytes + 1; /* "remark":, */
    }
    if (header_bytes > HEADER_BYTES_MAX || 8 + header_bytes + (int64_t)body_size > INT32_MAX) {
        Py_RETURN_NONE;
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 + header_bytes + body_size));
    if (frame == NULL) {
        return NULL;
    }
    byte *out = (byte *)PyBytes_AsString(frame);
    out = put_u32(out, (uint32_t)(4 + header_bytes + body_size));
    out = put_u32(out, (uint32_t)header_bytes);
    out = put_bytes(out, head, (size_t)head_size);
    if (fields_bytes) {
        out = put_bytes(out, "\"extFields\":{", 13);
        at = 0;
        while (PyDict_Next(ext_fields, &at, &key, &field)) {
            if (take_field(key, &name, &name_size) && take_field(field, &value, &value_size)) {
                out = put_quoted(out, name, name_size, quoted_bytes(name, name_size));
                *out++ = ':';
                out = put_quoted(out, value, value_size, quoted_bytes(value, value_size));
                *out++ = ',';
            }
        }
        out[-1] = '}';
        *out++ = ',';
    }
    out = put_bytes(out, middle, (size_t)middle_size);
    out = put_quoted(out, language, language_size, language_bytes);
    out = put_bytes(out, opaque, (size_t)opaque_size);
    if (remark) {
        out = put_bytes(out, "\"remark\":", 9);
        out = put_quoted(out, remark, remark_size, remark_bytes);
        *out++ = ',';
    }
    out = put_bytes(out, tail, (size_t)tail_size);
    put_bytes(out, body, (size_t)body_size);
    return frame;
}

PyMethodDef frame_methods[] = {
    {"read_frame", (PyCFunction)(void (*)(void))read_frame, METH_FASTCALL, NULL},
    {"write_frame", (PyCFunction)(void (*)(void))write_frame, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
