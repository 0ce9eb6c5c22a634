"""The bits of sysFlag, in send headers and stored records; plain ints, as ints are fastest."""

COMPRESSED = 1
MULTI_TAGS = 2
TRANSACTION_PREPARED = 4
TRANSACTION_COMMIT = 8
TRANSACTION_ROLLBACK = 12
TRANSACTION_MASK = 12
BORN_HOST_V6 = 16
STORE_HOST_V6 = 32
HOSTS_V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
NEEDS_UNWRAP = 64
INNER_BATCH = 128
COMPRESSION_LZ4 = 1 << 8
COMPRESSION_ZSTD = 2 << 8
COMPRESSION_ZLIB = 3 << 8
COMPRESSION_MASK = 7 << 8


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """The flag with its transaction bits replaced."""
    return sys_flag & ~TRANSACTION_MASK | transaction
