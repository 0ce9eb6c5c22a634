"""`rocketpipe demo`, but somebody takes a message out of the table, stores one at a second place,
or puts a row in twice.

python tampered_demo.py remove|repeat|row demo ...
"""

import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

from rocketpipe.cli.program import main
from rocketpipe.demo.demo import Demo, RunResult
from rocketpipe.demo.run import Run, Sent


def tamper(table: Path, how: str) -> str:
    """Change the first file that readers see; the id of the message that it is about."""
    files = [path for path in table.rglob("topic=*/date=*/*.parquet") if "/_" not in str(path)]
    file = sorted(files)[0]
    rows = pyarrow.parquet.read_table(file, partitioning=None)
    again = rows.slice(0, 1)
    if how == "repeat":
        column = rows.schema.get_field_index("queueOffset")
        elsewhere = pyarrow.array([1_000_000], rows.schema.field(column).type)
        again = again.set_column(column, rows.schema.field(column), elsewhere)
    changed = rows.slice(1) if how == "remove" else pyarrow.concat_tables([rows, again])
    pyarrow.parquet.write_table(changed, file)
    for checksum in file.parent.glob(f".{file.name}.crc"):
        checksum.unlink()  # Hadoop's, of the file as it was
    return str(rows["messageId"][0])


class TamperedDemo(Demo):
    def conclude(self, run: Run, sent: Sent) -> RunResult:
        message_id = tamper(run.pipeline.messages, sys.argv[1])
        (run.folder / "tampered").write_text(message_id)
        return super().conclude(run, sent)


if __name__ == "__main__":
    import rocketpipe.demo.demo

    rocketpipe.demo.demo.Demo = TamperedDemo  # type: ignore[misc]
    sys.exit(main(sys.argv[2:]))
