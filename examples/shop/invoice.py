"""Draws an invoice as PDF: work that keeps a processor busy for some milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import pbkdf2_hmac
from io import BytesIO

from reportlab.graphics.barcode.code128 import Code128
from reportlab.lib.pagesizes import A4
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

from examples.shop.models import Invoice, InvoiceLine

_WIDTH, _HEIGHT = A4
_LEFT, _RIGHT, _TOP, _BOTTOM = 20 * mm, _WIDTH - 20 * mm, _HEIGHT - 25 * mm, 30 * mm
_FOOT, _LINE = 15 * mm, 7 * mm
_COUNT, _PRICE = 120 * mm, 150 * mm  # right ends of columns
_FIRST = _TOP - 45 * mm  # where the table begins
_PER_PAGE = int((_FIRST - _BOTTOM) / _LINE) - 1  # the last place of a page is the total's

_SEAL_ROUNDS = 50_000  # some 15 ms


@dataclass(frozen=True, slots=True)
class Drawn:
    """An invoice as a file."""

    pdf: bytes
    pages: int
    total_cents: int


def draw_invoice(invoice: Invoice, stop: Callable[[], bool]) -> Drawn | None:
    """The invoice as PDF, the same bytes each time; None where `stop` came true between pages."""
    file = BytesIO()
    canvas = Canvas(file, pagesize=A4, invariant=1, pageCompression=1)
    canvas.setTitle(f"Invoice for order {invoice.order_id}")
    pages = [
        invoice.lines[start : start + _PER_PAGE]
        for start in range(0, len(invoice.lines), _PER_PAGE)
    ]
    total = sum(line.count * line.price_cents for line in invoice.lines)
    for number, lines in enumerate(pages, 1):
        if stop():
            return None
        _head(canvas, invoice, f"page {number} of {len(pages)}")
        end = _table(canvas, lines)
        if number == len(pages):
            _total(canvas, total, end)
        canvas.setFont("Courier", 7)
        canvas.drawString(_LEFT, _FOOT, f"Seal {_seal(invoice, number)}")
        canvas.showPage()
    canvas.save()
    return Drawn(file.getvalue(), len(pages), total)


def _seal(invoice: Invoice, page: int) -> str:
    """A mark of the content that is slow to compute: the part that takes the processor's time."""
    content = invoice.model_dump_json().encode()
    return pbkdf2_hmac("sha256", content, b"page %d" % page, _SEAL_ROUNDS).hex()


def _head(canvas: Canvas, invoice: Invoice, page: str) -> None:
    canvas.setFont("Helvetica-Bold", 20)
    canvas.drawString(_LEFT, _TOP, "Invoice")
    canvas.setFont("Helvetica", 10)
    canvas.drawString(_LEFT, _TOP - 10 * mm, f"Order {invoice.order_id}")
    canvas.drawString(_LEFT, _TOP - 16 * mm, _shortened(invoice.customer, 80))
    canvas.drawRightString(_RIGHT, _TOP - 16 * mm, page)
    barcode = Code128(str(invoice.order_id), barHeight=12 * mm, barWidth=0.35 * mm)
    barcode.drawOn(canvas, _RIGHT - barcode.width, _TOP - 8 * mm)
    canvas.setFont("Helvetica-Bold", 10)
    canvas.drawString(_LEFT, _FIRST + _LINE, "Article")
    for column, title in ((_COUNT, "Count"), (_PRICE, "Price"), (_RIGHT, "Amount")):
        canvas.drawRightString(column, _FIRST + _LINE, title)
    canvas.line(_LEFT, _FIRST + 5 * mm, _RIGHT, _FIRST + 5 * mm)


def _table(canvas: Canvas, lines: list[InvoiceLine]) -> float:
    """Draw the lines; the height at which the next one would stand."""
    canvas.setFont("Helvetica", 10)
    height: float = _FIRST
    for line in lines:
        canvas.drawString(_LEFT, height, _shortened(line.article, 48))
        canvas.drawRightString(_COUNT, height, str(line.count))
        canvas.drawRightString(_PRICE, height, _money(line.price_cents))
        canvas.drawRightString(_RIGHT, height, _money(line.count * line.price_cents))
        height -= _LINE
    return height


def _total(canvas: Canvas, cents: int, height: float) -> None:
    canvas.line(_LEFT, height + 5 * mm, _RIGHT, height + 5 * mm)
    canvas.setFont("Helvetica-Bold", 11)
    canvas.drawString(_LEFT, height, "Total")
    canvas.drawRightString(_RIGHT, height, _money(cents))


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02} EUR"


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
