/* Batches and message ids: the twins are in rocketpipe/wire/batch.py and wire/message_id.py. */

#include "common.h"

#define MEMBER_HEAD_BYTES 20
#define PROPERTIES_BYTES_MAX 32767

/* join_alike(bodies, flag, before, ids, after): the body of a batch whose members share all but their
   bodies and ids; None if it is not plain. */
static PyObject *join_alike(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 5 || !PyList_Check(args[0]) || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "join_alike(bodies, flag, before, ids, after)");
        return NULL;
    }
    PyObject *bodies = args[0], *ids = args[3];
    const byte *before, *after, *body, *id;
    Py_ssize_t before_size, after_size, body_size, id_size, size = PyList_Size(bodies);
    int64_t flag, total = 0, first_id_size = -1;
    if (!take_number(args[1], INT32_MIN, INT32_MAX, &flag) ||
        !take_bytes(args[2], &before, &before_size) || !take_bytes(args[4], &after, &after_size) ||
        PyList_Size(ids) != size) {
        Py_RETURN_NONE;
    }
    for (Py_ssize_t n = 0; n < size; n++) {
        if (!take_bytes(PyList_GetItem(bodies, n), &body, &body_size) || body_size > INT32_MAX ||
            !take_text(PyList_GetItem(ids, n), &id, &id_size)) {
            Py_RETURN_NONE;
        }
        if (first_id_size < 0) {
            first_id_size = id_size;
        }
        /* A comma would make two ids of one, for the twin as for who reads the answer. */
        if (id_size != first_id_size || memchr(id, ',', (size_t)id_size) != NULL) {
            Py_RETURN_NONE;
        }
        total += body_size;
    }
    int64_t properties = (int64_t)before_size + first_id_size + after_size;
    int64_t rest = MEMBER_HEAD_BYTES + 2 + properties;
    if (first_id_size < 0 || properties > PROPERTIES_BYTES_MAX || total + rest * size > INT32_MAX) {
        Py_RETURN_NONE;
    }
    PyObject *batch = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total + rest * size));
    if (batch == NULL) {
        return NULL;
    }
    byte *at = (byte *)PyBytes_AsString(batch);
    for (Py_ssize_t n = 0; n < size; n++) {
        if (take_bytes(PyList_GetItem(bodies, n), &body, &body_size) &&
            take_text(PyList_GetItem(ids, n), &id, &id_size)) {
            at = put_u32(at, (uint32_t)(rest + body_size));
            at = put_i64(at, 0); /* magic and CRC */
            at = put_u32(at, (uint32_t)flag);
            at = put_u32(at, (uint32_t)body_size);
            at = put_bytes(at, body, (size_t)body_size);
            at = put_u16(at, (uint32_t)properties);
            at = put_bytes(at, before, (size_t)before_size);
            at = put_bytes(at, id, (size_t)id_size);
            at = put_bytes(at, after, (size_t)after_size);
        }
    }
    return batch;
}

static byte *put_hex(byte *at, uint64_t number, int digits) {
    for (int n = digits - 1; n >= 0; n--) {
        *at++ = (byte) "0123456789ABCDEF"[number >> 4 * n & 15];
    }
    return at;
}

/* offset_ids(prefix, offsets): the ids of messages at these places, with commas between them. */
static PyObject *offset_ids(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    const byte *prefix;
    Py_ssize_t prefix_size;
    if (count != 2 || !take_text(args[0], &prefix, &prefix_size) || prefix_size > 4096 ||
        !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "offset_ids(prefix, offsets)");
        return NULL;
    }
    Py_ssize_t size = PyTuple_Size(args[1]), each = prefix_size + 16 + 1;
    if (size == 0 || size > INT32_MAX / each) {
        Py_RETURN_NONE;
    }
    byte *text = PyMem_Malloc((size_t)(size * each)), *at = text;
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t n = 0; n < size; n++) {
        int64_t offset;
        if (!take_number(PyTuple_GetItem(args[1], n), 0, INT64_MAX, &offset)) {
            PyMem_Free(text);
            Py_RETURN_NONE;
        }
        at = put_bytes(at, prefix, (size_t)prefix_size);
        at = put_hex(at, (uint64_t)offset, 16);
        *at++ = ',';
    }
    PyObject *ids = PyUnicode_DecodeUTF8((const char *)text, at - text - 1, NULL);
    PyMem_Free(text);
    return ids;
}

/* counted_ids(head, first, quantity): texts that begin alike and end in four digits that count up. */
static PyObject *counted_ids(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    const byte *head;
    Py_ssize_t head_size;
    int64_t first, quantity;
    byte text[256];
    if (count != 3 || !take_text(args[0], &head, &head_size) ||
        head_size > (Py_ssize_t)sizeof text - 4 || !take_number(args[1], 0, 0xFFFF, &first) ||
        !take_number(args[2], 0, 0x10000 - first, &quantity)) {
        PyErr_SetString(PyExc_TypeError, "counted_ids(head, first, quantity)");
        return NULL;
    }
    PyObject *ids = PyList_New((Py_ssize_t)quantity);
    byte *tail = put_bytes(text, head, (size_t)head_size);
    for (Py_ssize_t n = 0; ids != NULL && n < quantity; n++) {
        put_hex(tail, (uint64_t)(first + n), 4);
        PyObject *id = PyUnicode_DecodeUTF8((const char *)text, head_size + 4, NULL);
        if (id == NULL) {
            Py_CLEAR(ids);
        } else {
            PyList_SetItem(ids, n, id);
        }
    }
    return ids;
}

PyMethodDef record_methods[] = {
    {"join_alike", (PyCFunction)(void (*)(void))join_alike, METH_FASTCALL, NULL},
    {"offset_ids", (PyCFunction)(void (*)(void))offset_ids, METH_FASTCALL, NULL},
    {"counted_ids", (PyCFunction)(void (*)(void))counted_ids, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
