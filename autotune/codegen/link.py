"""Object code linked into this process, without LLVM: what runs a compiled model needs NumPy alone.

Our objects are small and of one kind: position-independent x86-64 ELF for Linux, with a handful of relocations (System
V ABI, AMD64 supplement, 4.4.1). All sections of a library lie in one mapping, so 32-bit distances reach; what is
outside is called through a table behind the code. The mapping is written first and made executable then, never both.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, final

from autotune import machine
from autotune.errors import CodegenError
from autotune.target import Target

_HEAD = b"\x7fELF\x02\x01\x01"
_RELOCATABLE_X86_64 = (1, 62)
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # section types
_WRITE, _ALLOC = 1, 2  # section flags
_UNDEFINED, _ABSOLUTE, _RESERVED = 0, 0xFFF1, 0xFF00  # section numbers of symbols
_LOCAL = 0  # binding of symbols
_FAR, _RELATIVE, _TABLE = 1, {2, 4}, {9, 41, 42}  # relocations: R_X86_64_64; PC32, PLT32; GOTPCREL and its kin
_STUB = bytes.fromhex("ff2502000000 0f0b")  # jmp *2(%rip): to the address behind these 8 bytes
_ENTRY = 16  # bytes of the table a symbol: the stub, and the address
_PAGE = mmap.PAGESIZE
_MOST_ZEROS = 1 << 24  # bytes of a section that are not in the file
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    def fits(self, nbytes: int) -> bool:
        """Whether an object of so many bytes can hold it."""
        end = self.size if self.kind == _NOBITS else self.offset + self.size
        return self.align <= _PAGE and end <= (_MOST_ZEROS if self.kind == _NOBITS else nbytes)


class _Symbol(NamedTuple):
    name: str
    binding: int
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class _Object:
    """A relocatable object, parsed."""

    data: bytes
    sections: tuple[_Section, ...]
    symbols: tuple[_Symbol, ...]

    @staticmethod
    def parse(data: bytes) -> _Object:
        """Raises CodegenError: it is no such object; struct.error, IndexError and their kin: it is damaged."""
        if not data.startswith(_HEAD) or struct.unpack_from("<HH", data, 16) != _RELOCATABLE_X86_64:
            raise CodegenError("cannot link object code: it is no relocatable object for x86-64")
        (start,), (size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
        sections = tuple(_Section(*_SECTION.unpack_from(data, start + n * size)) for n in range(count))
        if not all(section.fits(len(data)) for section in sections):
            raise CodegenError("cannot link object code: it is damaged (a section is larger than the object)")
        symbols: list[_Symbol] = []
        for table in (s for s in sections if s.kind == _SYMTAB):
            names = sections[table.link].offset
            for n in range(table.size // _SYMBOL.size):
                name, info, _, section, value, _ = _SYMBOL.unpack_from(data, table.offset + n * _SYMBOL.size)
                text = data[names + name : data.index(b"\0", names + name)].decode()
                symbols.append(_Symbol(text, info >> 4, section, value))
        return _Object(data, sections, tuple(symbols))

    def relocations(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(section, offset in it, type, symbol, addend), for sections that are in memory."""
        for table in self.sections:
            if table.kind == _RELA and self.sections[table.info].flags & _ALLOC:
                for n in range(table.size // _RELOCATION.size):
                    offset, info, addend = _RELOCATION.unpack_from(self.data, table.offset + n * _RELOCATION.size)
                    yield table.info, offset, info & 0xFFFFFFFF, info >> 32, addend


@final
class Library:
    """Objects linked into this process, with a symbol table of their own.

    Two libraries may define equal symbols. Addresses are valid until `close`, or the end of the library; nothing
    checks that no thread still runs in the code.
    """

    def __init__(self, objects: Sequence[bytes], imports: Mapping[str, int]) -> None:
        self._objects = [_Object.parse(data) for data in objects]
        self._places: dict[tuple[int, int], int] = {}  # (object, section) -> offset in the mapping
        self._table: dict[tuple[int, int], int] = {}  # (object, symbol) -> offset of its entry
        self._missing: set[str] = set()
        code = self._place(0, writable=False)
        self._external = [
            (n, s) for n, o in enumerate(self._objects) for *_, kind, s, _ in o.relocations()
            if o.symbols[s].section == _UNDEFINED or kind in _TABLE
        ]  # fmt: skip
        for n, key in enumerate(dict.fromkeys(self._external)):
            self._table[key] = _up(code, _ENTRY) + n * _ENTRY
        data = _up(_up(code, _ENTRY) + len(self._table) * _ENTRY, _PAGE)
        size = max(_up(self._place(data, writable=True), _PAGE), _PAGE)
        self._base = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANON, -1, 0)
        if self._base in (None, ctypes.c_void_p(-1).value):
            raise CodegenError("cannot link object code: no memory for it")
        self._unmap = weakref.finalize(self, _libc().munmap, self._base, size)
        self._unmap.atexit = False  # helper threads may still be in it
        self._symbols = self._defined()
        self._write(memoryview(bytearray(size)), imports)
        if data and _libc().mprotect(self._base, data, _READ_EXECUTE):
            raise CodegenError("cannot link object code: the system lets this process make no memory executable")

    def address(self, symbol: str) -> int:
        """The address of a defined symbol.

        Raises:
            CodegenError: the symbol is not defined, an external symbol that the objects need is not, or the library is
                closed.
        """
        if not self._unmap.alive:
            raise CodegenError(f"cannot look up {symbol!r}: the library is closed")
        if self._missing or symbol not in self._symbols:
            missing = ", ".join(sorted(self._missing)) or symbol
            raise CodegenError(f"cannot resolve {symbol!r} in the linked objects: nothing defines {missing}")
        return self._symbols[symbol]

    def defines(self, symbol: str) -> bool:
        """Whether `address` finds it."""
        return symbol in self._symbols

    def close(self) -> None:
        """Unload the code; calling an address afterwards is undefined."""
        self._unmap()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _place(self, end: int, *, writable: bool) -> int:
        """Give the sections of one kind their places from `end` on; where they end."""
        for n, parsed in enumerate(self._objects):
            for number, section in enumerate(parsed.sections):
                if section.flags & _ALLOC and bool(section.flags & _WRITE) == writable:
                    end = _up(end, max(section.align, 1))
                    self._places[n, number] = end
                    end += section.size
        return end

    def _defined(self) -> dict[str, int]:
        """Addresses of the symbols that the objects show each other."""
        found: dict[str, int] = {}
        for n, parsed in enumerate(self._objects):
            for symbol in parsed.symbols:
                if symbol.binding != _LOCAL and symbol.section != _UNDEFINED:
                    if symbol.name in found:
                        raise CodegenError(f"cannot link object code: {symbol.name} is defined twice")
                    found[symbol.name] = self._at(n, symbol)
        return found

    def _at(self, number: int, symbol: _Symbol) -> int:
        """Where a symbol of an object is that the object defines."""
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section >= _RESERVED or (number, symbol.section) not in self._places:
            raise CodegenError(f"cannot link object code: {symbol.name or 'a symbol'} has no place in memory")
        return int(self._base) + self._places[number, symbol.section] + symbol.value

    def _write(self, image: memoryview, imports: Mapping[str, int]) -> None:
        """Sections, table and relocations, as they are to lie in memory; a view takes nothing beyond its end."""
        for (n, number), place in self._places.items():
            section = self._objects[n].sections[number]
            if section.kind != _NOBITS:
                image[place : place + section.size] = self._objects[n].data[section.offset :][: section.size]
        targets: dict[tuple[int, int], int] = {}
        for (n, s), place in self._table.items():
            symbol = self._objects[n].symbols[s]
            targets[n, s] = self._outside(symbol.name, imports) if symbol.section == _UNDEFINED else self._at(n, symbol)
            image[place : place + _ENTRY] = _STUB + targets[n, s].to_bytes(8, "little")
        for n, parsed in enumerate(self._objects):
            for number, offset, kind, s, addend in parsed.relocations():
                symbol, place = parsed.symbols[s], self._places[n, number] + offset
                if kind == _FAR:
                    to = targets[n, s] if symbol.section == _UNDEFINED else self._at(n, symbol)
                    image[place : place + 8] = (to + addend & 2**64 - 1).to_bytes(8, "little")
                    continue
                if kind in _TABLE:
                    to = int(self._base) + self._table[n, s] + _ENTRY // 2
                elif kind in _RELATIVE:
                    entry = self._table.get((n, s))
                    to = self._at(n, symbol) if symbol.section != _UNDEFINED else int(self._base) + int(entry or 0)
                else:
                    raise CodegenError(f"cannot link object code: it has relocations of type {kind}")
                image[place : place + 4] = struct.pack("<i", to + addend - int(self._base) - place)
        ctypes.memmove(self._base, image.tobytes(), len(image))

    def _outside(self, name: str, imports: Mapping[str, int]) -> int:
        """The address of a symbol that an object needs; 0 where there is none."""
        found = self._symbols.get(name) or imports.get(name) or _process_symbol(name)
        if not found:
            self._missing.add(name)
        return found


def load_objects(
    objects: Sequence[bytes], imports: Mapping[str, int] | None = None, target: Target | None = None
) -> Library:
    """Link object code into this process.

    Undefined symbols resolve to the other objects, to `imports` (name to address, e.g. the runtime's
    barrier), then to the process (libc).

    Args:
        objects: relocatable objects.
        imports: symbols from elsewhere.
        target: what the objects were built for; None for code that every CPU can run.

    Raises:
        TargetError: this CPU lacks a feature of the target, so that running the code would end the process.
        CodegenError: not an object, a damaged one, or a symbol is defined twice.
    """
    if target is not None:
        target.require_host()
    machine.allow_tiles()  # what is linked may use them
    try:
        return Library(objects, imports or {})
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise CodegenError(f"cannot link object code: it is damaged ({error})") from error


def _process_symbol(name: str) -> int:
    """The address of a function of this process, of the C library or of its mathematics; 0 where there is none."""
    for library in (_libc(), _libm()):
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value or 0
        except (AttributeError, ValueError):
            continue
    return 0


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.argtypes, libc.mmap.restype = (pointer, size, number, number, number, ctypes.c_long), pointer
    libc.munmap.argtypes = (pointer, size)
    libc.mprotect.argtypes = (pointer, size, number)
    return libc


@functools.cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
