"""What the container of an artifact looks like in bytes: a zip file of stored entries, aligned. Nothing else is read.

Numbers beyond 32 bits are in the ZIP64 fields. No entry is compressed, encrypted or followed by a data descriptor, the
file has no comment, and the central directory ends where the end record begins.
"""

from __future__ import annotations

import re
import struct

ALIGNMENT = 64
"""Of the first byte of each entry's content, in bytes."""

LOCAL = struct.Struct("<4sHHHHHIIIHH")
"""signature, version, flags, method, time, date, crc, compressed size, size, length of name, length of extra."""
CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
"""… as above with the writer's version first; then comment, disk, attributes (two), offset of the local header."""
END = struct.Struct("<4sHHHHIIH")
"""signature, disk (two), entries (two), size and offset of the central directory, length of the comment."""
END64 = struct.Struct("<4sQHHIIQQQQ")
LOCATOR64 = struct.Struct("<4sIQI")

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
END64_SIGNATURE = b"PK\x06\x06"
LOCATOR64_SIGNATURE = b"PK\x06\x07"

EXTRA64 = 0x0001
"""Extra field of sizes and an offset beyond 32 bits."""
EXTRA_PADDING = 0xD935
"""Extra field that aligns: the alignment as u16, then zeros."""
BIG = 0xFFFFFFFF
MANY = 0xFFFF
DATE = (1 << 5) | 1
"""1980-01-01, the zip format's first day: an entry has no date of its own."""

NAME = re.compile(r"\w[\w.-]{0,127}(/\w[\w.-]{0,127}){0,3}", re.ASCII)
"""What an entry may be called: relative, no folder begins with a dot."""
