"""CSV to Parquet as pyarrow does it by itself: its streaming reader into its writer, with all threads."""

import sys

import pyarrow.csv
import pyarrow.parquet


def main(source: str, out: str) -> None:
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with (
        pyarrow.csv.open_csv(source, parse_options=parse) as reader,
        pyarrow.parquet.ParquetWriter(out, reader.schema) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
