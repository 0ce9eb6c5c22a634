/* Stored records as a consumer decodes them: the twin is rocketpipe/wire/record.py. */

#include "common.h"

#define NUMBERS_BYTES 72 /* of a record's numbers, up to the length of its body; hosts come on top */

int split_record(const byte *at, int64_t left, Parts *parts) {
    if (left < NUMBERS_BYTES) {
        return 0;
    }
    uint32_t sys_flag = get_u32(at + 36), magic = get_u32(at + 4);
    parts->born_host_size = sys_flag & 0x10 ? 20 : 8;
    parts->store_host_size = sys_flag & 0x20 ? 20 : 8;
    int64_t place = NUMBERS_BYTES + parts->born_host_size + parts->store_host_size;
    int64_t length_bytes = magic == 0xDAA320A7 ? 1 : 2;
    if ((magic != 0xDAA320A7 && magic != 0xDAA320AB) || left < place) {
        return 0;
    }
    parts->size = get_i32(at);
    parts->born_host = at + 48;
    parts->store_timestamp = parts->born_host + parts->born_host_size;
    parts->store_host = parts->store_timestamp + 8;
    parts->body = at + place;
    parts->body_size = get_i32(at + place - 4);
    if (parts->body_size < 0 || left - place < parts->body_size + length_bytes) {
        return 0;
    }
    place += parts->body_size;
    parts->topic_size = length_bytes == 1 ? at[place] : get_u16(at + place);
    place += length_bytes;
    parts->topic = at + place;
    if (left - place < parts->topic_size + 2) {
        return 0;
    }
    place += parts->topic_size;
    parts->properties_size = get_u16(at + place);
    place += 2;
    parts->properties = at + place;
    return parts->properties_size <= 32767 && left - place >= parts->properties_size &&
           place + parts->properties_size == parts->size;
}

PyObject *keep(Kept *kept, const byte *start, int64_t size, PyObject *unpack) {
    if (kept->value == NULL || kept->size != size ||
        memcmp(kept->start, start, (size_t)size) != 0) {
        Py_CLEAR(kept->value);
        kept->start = start;
        kept->size = size;
        if (unpack == NULL) {
            kept->value = PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)size, NULL);
        } else {
            PyObject *packed = PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size);
            kept->value = packed ? PyObject_CallFunctionObjArgs(unpack, packed, NULL) : NULL;
            Py_XDECREF(packed);
        }
    }
    Py_XINCREF(kept->value);
    return kept->value;
}

enum { FIELDS = 17 };
static const char *const field_names[FIELDS] = {
    "topic",
    "body",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "flag",
    "sys_flag",
    "body_crc",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "store_size",
    "broker_name",
    "_unread_properties",
};
static PyObject *fields[FIELDS];

int prepare_fields(void) {
    for (int n = 0; n < FIELDS; n++) {
        if (fields[n] == NULL && (fields[n] = PyUnicode_InternFromString(field_names[n])) == NULL) {
            return -1;
        }
    }
    return 0;
}

static PyObject *bytes_of(const byte *start, int64_t size) {
    return PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size);
}

/* A message of the class, with its slots filled; its class may forbid that to others. */
static PyObject *make_message(PyTypeObject *kind, PyObject *values[FIELDS]) {
    PyObject *message = PyType_GenericAlloc(kind, 0);
    for (int n = 0; n < FIELDS; n++) {
        if (message != NULL &&
            (values[n] == NULL || PyObject_GenericSetAttr(message, fields[n], values[n]) < 0)) {
            Py_CLEAR(message);
        }
        Py_XDECREF(values[n]);
    }
    return message;
}

/* decode_records(kind, data, check_crc, unpack_host, broker_name): messages of that class; None
   unless all records are whole and plain. */
static PyObject *decode_records(PyObject *Py_UNUSED(module), PyObject *const *args,
                                Py_ssize_t count) {
    const byte *data;
    Py_ssize_t size;
    if (count != 5 || !PyType_Check(args[0]) || !take_bytes(args[1], &data, &size)) {
        PyErr_SetString(PyExc_TypeError,
                        "decode_records(kind, data, check_crc, unpack_host, broker_name)");
        return NULL;
    }
    int checks_crc = PyObject_IsTrue(args[2]);
    Kept topic = {0}, born_host = {0}, store_host = {0};
    PyObject *messages = PyList_New(0);
    const byte *at = data, *end = data + size;
    while (messages != NULL && at < end) {
        Parts parts;
        PyObject *message = NULL;
        if (split_record(at, end - at, &parts) && !(get_u32(at + 36) & NOT_PLAIN) &&
            (!checks_crc ||
             (crc32_of(parts.body, (size_t)parts.body_size, 0) & 0x7FFFFFFF) == get_u32(at + 8))) {
            Py_INCREF(args[4]);
            const byte *tail = parts.store_host + parts.store_host_size;
            PyObject *values[FIELDS] = {
                keep(&topic, parts.topic, parts.topic_size, NULL),
                bytes_of(parts.body, parts.body_size),
                PyLong_FromLong(get_i32(at + 12)),
                PyLong_FromLongLong(get_i64(at + 20)),
                PyLong_FromLongLong(get_i64(at + 28)),
                PyLong_FromLong(get_i32(at + 16)),
                PyLong_FromLong(get_i32(at + 36)),
                PyLong_FromLong(get_i32(at + 8)),
                PyLong_FromLongLong(get_i64(at + 40)),
                keep(&born_host, parts.born_host, parts.born_host_size, args[3]),
                PyLong_FromLongLong(get_i64(parts.store_timestamp)),
                keep(&store_host, parts.store_host, parts.store_host_size, args[3]),
                PyLong_FromLong(get_i32(tail)),
                PyLong_FromLongLong(get_i64(tail + 4)),
                PyLong_FromLongLong(parts.size),
                args[4],
                bytes_of(parts.properties, parts.properties_size),
            };
            message = make_message((PyTypeObject *)args[0], values);
        }
        if (message == NULL || PyList_Append(messages, message) < 0) {
            Py_CLEAR(messages);
        }
        Py_XDECREF(message);
        at += message ? parts.size : 0;
    }
    Py_XDECREF(topic.value);
    Py_XDECREF(born_host.value);
    Py_XDECREF(store_host.value);
    if (messages == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return messages;
}

/* record_starts(data): where each record begins, by their sizes alone; None unless these lead to the
   end. */
static PyObject *record_starts(PyObject *Py_UNUSED(module), PyObject *data) {
    const byte *bytes;
    Py_ssize_t size;
    if (!take_bytes(data, &bytes, &size)) {
        Py_RETURN_NONE;
    }
    PyObject *starts = PyList_New(0);
    Py_ssize_t at = 0;
    while (starts != NULL && size - at >= RECORD_BYTES_MIN) {
        int32_t record_size = get_i32(bytes + at);
        if (record_size < RECORD_BYTES_MIN || record_size > size - at) {
            break;
        }
        PyObject *start = PyLong_FromSsize_t(at);
        if (start == NULL || PyList_Append(starts, start) < 0) {
            Py_CLEAR(starts);
        }
        Py_XDECREF(start);
        at += record_size;
    }
    if (starts != NULL && at != size) {
        Py_DECREF(starts);
        Py_RETURN_NONE;
    }
    return starts;
}

PyMethodDef decode_methods[] = {
    {"record_starts", record_starts, METH_O, NULL},
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
