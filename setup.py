"""What pyproject.toml can't say for good yet: the compiled part, which may be missing.

Without a C compiler the package is built without it, and works the same, slower.
"""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(map(str, Path("csrc").glob("*.c")))

setup(
    ext_modules=[
        Extension(
            "rocketpipe._compiled",
            SOURCES,
            depends=["csrc/common.h", "csrc/header.h"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
