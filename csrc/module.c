/* The module rocketpipe._compiled: the hot loops of the wire and the store. See common.h. */

#include "common.h"

static uint32_t crc_tables[16][256];

void prepare_crc(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t value = n;
        for (int bit = 0; bit < 8; bit++) {
            value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
        }
        crc_tables[0][n] = value;
    }
    for (uint32_t n = 0; n < 256; n++) {
        for (int table = 1; table < 16; table++) {
            uint32_t before = crc_tables[table - 1][n];
            crc_tables[table][n] = before >> 8 ^ crc_tables[0][before & 0xFF];
        }
    }
}

/* Sixteen bytes at a time, each through a table of its own. */
uint32_t crc32_of(const byte *data, size_t size, uint32_t before) {
    uint32_t crc = ~before;
    while (size >= 16) {
        uint32_t head = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                               (uint32_t)data[3] << 24);
        crc = crc_tables[15][head & 0xFF] ^ crc_tables[14][head >> 8 & 0xFF] ^
              crc_tables[13][head >> 16 & 0xFF] ^ crc_tables[12][head >> 24];
        for (int n = 4; n < 16; n++) {
            crc ^= crc_tables[15 - n][data[n]];
        }
        data += 16;
        size -= 16;
    }
    while (size--) {
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *data++) & 0xFF];
    }
    return ~crc;
}

static int add_all(PyObject *module) {
    prepare_crc();
    if (prepare_fields() < 0 || PyModule_AddFunctions(module, frame_methods) < 0 ||
        PyModule_AddFunctions(module, decode_methods) < 0 ||
        PyModule_AddFunctions(module, column_methods) < 0 ||
        PyModule_AddFunctions(module, pull_methods) < 0 ||
        PyModule_AddFunctions(module, pull_request_methods) < 0 ||
        PyModule_AddFunctions(module, send_methods) < 0 ||
        PyModule_AddFunctions(module, record_methods) < 0 ||
        PyModule_AddFunctions(module, store_methods) < 0) {
        return -1;
    }
    /* Raised with every change of a signature or of what is returned: see compiled.py. */
    return PyModule_AddIntConstant(module, "VERSION", 6);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_all}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rocketpipe._compiled",
    .m_doc = "The hot loops of the wire and the store, compiled; each has a twin in Python.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
