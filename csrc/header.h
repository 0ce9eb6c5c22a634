/* How the JSON header of a frame is read, as far as it is plain. What is not makes a function return 0
   or NULL; nothing is raised. */

#ifndef ROCKETPIPE_HEADER_H
#define ROCKETPIPE_HEADER_H

#include "common.h"

#define HEADER_BYTES_MAX 0xFFFFFF
#define NUMBER_DIGITS_MAX 18 /* what surely fits in 64 bits */

/* A place in a header that is being read. */
typedef struct {
    const byte *at, *end;
} Reader;

/* What stands between quotes. */
typedef struct {
    const byte *start;
    size_t size;
} Text;

static inline int is_next(Reader *reader, byte expected) {
    if (reader->at < reader->end && *reader->at == expected) {
        reader->at++;
        return 1;
    }
    return 0;
}

/* A text without escapes and beyond ASCII nothing: nobody need decode it then. */
static inline int read_text(Reader *reader, Text *text) {
    if (!is_next(reader, '"')) {
        return 0;
    }
    text->start = reader->at;
    while (reader->at < reader->end && *reader->at != '"') {
        if (*reader->at == '\\' || *reader->at < 0x20 || *reader->at > 0x7E) {
            return 0;
        }
        reader->at++;
    }
    text->size = (size_t)(reader->at - text->start);
    return is_next(reader, '"');
}

static inline int is_named(Text name, const char *expected) {
    return name.size == strlen(expected) && memcmp(name.start, expected, name.size) == 0;
}

/* Digits and nothing else, without a zero before others. */
static inline int number_of(Text text, int64_t most, int64_t *number) {
    if (text.size == 0 || text.size > NUMBER_DIGITS_MAX ||
        (text.size > 1 && text.start[0] == '0')) {
        return 0;
    }
    *number = 0;
    for (size_t n = 0; n < text.size; n++) {
        if (text.start[n] < '0' || text.start[n] > '9') {
            return 0;
        }
        *number = *number * 10 + (text.start[n] - '0');
    }
    return *number <= most;
}

/* A 32-bit number without quotes. */
static inline int read_plain_number(Reader *reader, int64_t *number) {
    Text text = {reader->at, 0};
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        reader->at++;
    }
    text.size = (size_t)(reader->at - text.start);
    return number_of(text, INT32_MAX, number);
}

static inline int hex_digit(byte digit) {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* One escape, of which the backslash has been read, as UTF-8; where what is written ends, or NULL. */
static inline byte *unescape(Reader *reader, byte *out) {
    if (reader->at >= reader->end) {
        return NULL;
    }
    byte kind = *reader->at++;
    switch (kind) {
    case '"':
    case '\\':
    case '/': *out++ = kind; return out;
    case 'b': *out++ = '\b'; return out;
    case 'f': *out++ = '\f'; return out;
    case 'n': *out++ = '\n'; return out;
    case 'r': *out++ = '\r'; return out;
    case 't': *out++ = '\t'; return out;
    case 'u': break;
    default: return NULL;
    }
    if (reader->end - reader->at < 4) {
        return NULL;
    }
    uint32_t unit = 0;
    for (int n = 0; n < 4; n++) {
        int digit = hex_digit(*reader->at++);
        if (digit < 0) {
            return NULL;
        }
        unit = unit << 4 | (uint32_t)digit;
    }
    if (unit >= 0xD800 && unit <= 0xDFFF) {
        return NULL; /* a surrogate */
    }
    if (unit < 0x80) {
        *out++ = (byte)unit;
    } else if (unit < 0x800) {
        *out++ = (byte)(0xC0 | unit >> 6);
        *out++ = (byte)(0x80 | (unit & 0x3F));
    } else {
        *out++ = (byte)(0xE0 | unit >> 12);
        *out++ = (byte)(0x80 | (unit >> 6 & 0x3F));
        *out++ = (byte)(0x80 | (unit & 0x3F));
    }
    return out;
}

/* A header but for its fields: what makes it plain, and what is found. */
typedef struct {
    int64_t codes[2], flag; /* one of these codes, and this flag */
    int may_have_remark;
    int64_t code, opaque;
} Envelope;

/* Reads the value of a field, whose name and colon have been read; 0 if it is not plain. */
typedef int (*ReadField)(Reader *reader, Text name, void *fields);

static inline int read_ext_fields(Reader *reader, ReadField read_field, void *fields) {
    Text name;
    if (!is_next(reader, '{')) {
        return 0;
    }
    do {
        if (!read_text(reader, &name) || !is_next(reader, ':') ||
            !read_field(reader, name, fields)) {
            return 0;
        }
    } while (is_next(reader, ','));
    return is_next(reader, '}');
}

/* Whether it is all of a plain header. What its code rules out is not read on. */
static inline int read_envelope(Reader *reader, Envelope *envelope, ReadField read_field,
                                void *fields) {
    int64_t flag = -1, version;
    int has_fields = 0, is_plain = is_next(reader, '{');
    envelope->code = envelope->opaque = -1;
    while (is_plain) {
        Text name, ignored;
        if (!read_text(reader, &name) || !is_next(reader, ':')) {
            return 0;
        }
        if (is_named(name, "code")) {
            is_plain =
                read_plain_number(reader, &envelope->code) &&
                (envelope->code == envelope->codes[0] || envelope->code == envelope->codes[1]);
        } else if (is_named(name, "flag")) {
            is_plain = read_plain_number(reader, &flag);
        } else if (is_named(name, "opaque")) {
            is_plain = read_plain_number(reader, &envelope->opaque);
        } else if (is_named(name, "version")) {
            is_plain = read_plain_number(reader, &version);
        } else if (is_named(name, "extFields")) {
            is_plain = !has_fields && read_ext_fields(reader, read_field, fields);
            has_fields = 1;
        } else {
            is_plain = (is_named(name, "language") || is_named(name, "serializeTypeCurrentRPC") ||
                        (envelope->may_have_remark && is_named(name, "remark"))) &&
                       read_text(reader, &ignored);
        }
        if (is_plain && !is_next(reader, ',')) {
            break;
        }
    }
    return is_plain && is_next(reader, '}') && reader->at == reader->end && envelope->code >= 0 &&
           flag == envelope->flag && envelope->opaque >= 0;
}

/* A whole frame with a JSON header, at `start` of so many bytes: where it ends, or NULL. */
static inline const byte *whole_frame(const byte *start, int64_t left, int64_t bytes_max,
                                      Reader *header) {
    if (left < 8) {
        return NULL;
    }
    int64_t length = get_i32(start);
    int64_t header_bytes = get_u32(start + 4); /* the first byte is the kind: 0 is JSON */
    if (length < 4 || length > bytes_max - 4 || 4 + length > left || 4 + header_bytes > length ||
        header_bytes > HEADER_BYTES_MAX) {
        return NULL;
    }
    header->at = start + 8;
    header->end = header->at + header_bytes;
    return start + 4 + length;
}

#endif
