/* What the parts of the compiled module share: big-endian numbers, CRC-32, and how they give up.

   Rules of all of this
   - Every function has a twin in Python that knows all cases and all errors. What is not plain is
     not done here: the function returns None, and its caller asks the twin.
   - Bytes come from outside. Nothing is read before its bounds are checked, in 64-bit numbers that
     sums of lengths can't overflow; nothing is written but into memory of a size counted before.
   - Only the stable ABI of Python 3.11 is used: one build serves that and all later ones. */

#ifndef ROCKETPIPE_COMMON_H
#define ROCKETPIPE_COMMON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define RECORD_BYTES_MIN 91

typedef unsigned char byte;

static inline uint32_t get_u16(const byte *at) { return (uint32_t)at[0] << 8 | at[1]; }

static inline uint32_t get_u32(const byte *at) { return get_u16(at) << 16 | get_u16(at + 2); }

static inline int32_t get_i32(const byte *at) { return (int32_t)get_u32(at); }

static inline int64_t get_i64(const byte *at) {
    return (int64_t)((uint64_t)get_u32(at) << 32 | get_u32(at + 4));
}

static inline byte *put_u16(byte *at, uint32_t value) {
    at[0] = (byte)(value >> 8);
    at[1] = (byte)value;
    return at + 2;
}

static inline byte *put_u32(byte *at, uint32_t value) {
    return put_u16(put_u16(at, value >> 16), value & 0xFFFF);
}

static inline byte *put_i64(byte *at, int64_t value) {
    return put_u32(put_u32(at, (uint32_t)((uint64_t)value >> 32)), (uint32_t)value);
}

static inline byte *put_bytes(byte *at, const void *data, size_t size) {
    memcpy(at, data, size);
    return at + size;
}

/* zlib's crc32 */
void prepare_crc(void);
uint32_t crc32_of(const byte *data, size_t size, uint32_t before);

/* Whether it is of the type; else it is not for us. Nothing is raised. */
static inline int take_bytes(PyObject *object, const byte **data, Py_ssize_t *size) {
    char *start;
    if (!PyBytes_Check(object) || PyBytes_AsStringAndSize(object, &start, size) < 0) {
        PyErr_Clear();
        return 0;
    }
    *data = (const byte *)start;
    return 1;
}

static inline int take_text(PyObject *object, const byte **data, Py_ssize_t *size) {
    if (!PyUnicode_Check(object)) {
        return 0;
    }
    *data = (const byte *)PyUnicode_AsUTF8AndSize(object, size);
    if (*data == NULL) { /* half a pair of surrogates */
        PyErr_Clear();
        return 0;
    }
    return 1;
}

static inline int take_number(PyObject *object, int64_t least, int64_t most, int64_t *number) {
    int overflow;
    if (!PyLong_Check(object)) {
        return 0;
    }
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && least <= *number && *number <= most;
}

/* Stored records. */
#define NOT_PLAIN (1 | 0x40 | 0x80) /* bits of sysFlag: compressed, or a batch to unwrap */

typedef struct {
    const byte *body, *topic, *properties, *born_host, *store_host, *store_timestamp;
    int64_t size, body_size, topic_size, properties_size, born_host_size, store_host_size;
} Parts;

/* Find the parts of the record at the start of so many bytes; 0 unless it fills its size exactly. */
int split_record(const byte *at, int64_t left, Parts *parts);

/* A value made of bytes, kept as long as the next record has the same. */
typedef struct {
    const byte *start;
    int64_t size;
    PyObject *value;
} Kept;

/* A new reference to what `unpack` makes of these bytes, or to the text they are without one. */
PyObject *keep(Kept *kept, const byte *start, int64_t size, PyObject *unpack);

int prepare_fields(void);

extern PyMethodDef frame_methods[], record_methods[], decode_methods[], store_methods[];
extern PyMethodDef column_methods[], pull_methods[], pull_request_methods[];
extern PyMethodDef send_methods[];

#endif
