"""How each column of a spreadsheet was understood: what a dry run prints and the card keeps."""

from dataclasses import dataclass

from interfere.data.importers.spreadsheet.column_roles import EXTRA, ColumnRoles, Measure, ValueKind, describe
from interfere.data.importers.spreadsheet.measured_values import ALONE_WORDS, Conditions
from interfere.data.importers.spreadsheet.pair_layouts import Victims
from interfere.data.importers.spreadsheet.profile_sheet import FACT_OF_ROLE
from interfere.data.importers.spreadsheet.sheet import Sheet, is_empty


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnUse:
    """One column, or one property that holds for the whole sheet (`column` is "" then)."""

    file: str
    column: str
    role: str
    meaning: str
    values: int  # cells that hold something
    example: str

    def text(self) -> str:
        """The use in one line."""
        where = f"{self.file}, column `{self.column}`" if self.column else f"{self.file}, every row"
        return f"{where}: {self.role} ({self.meaning}), {self.values} values, such as {self.example or 'none'}"


def uses_of_pairs(sheet: Sheet, roles: ColumnRoles, given: Conditions) -> tuple[ColumnUse, ...]:
    """The columns of a sheet with one row a pair, then what holds for all its rows."""
    columns = tuple(
        _column_use(sheet, column, role, "kept under its own name" if role == EXTRA else describe(role))
        for column, role in roles.role_of.items()
    )
    return (*columns, *_for_every_row(sheet, roles, given))


def uses_of_matrix(
    sheet: Sheet, roles: ColumnRoles, measure: Measure, given: Conditions, victims: Victims
) -> tuple[ColumnUse, ...]:
    """The first column and the job columns of a matrix, then what holds for all its rows."""
    kind = f"{measure.metric or measure.kind.value}" if measure.kind is ValueKind.TIME else measure.kind.value
    unit = f", unit {measure.seconds:g} s" if measure.kind is ValueKind.TIME else ""
    named, of_row = ("victim", "neighbour") if victims is Victims.ROWS else ("neighbour", "victim")
    uses = [_column_use(sheet, sheet.columns[0], named, "name of the job")]
    for column in sheet.columns[1:]:
        role = roles.role_of[column]
        if role in ("device_type", "mode", "metric"):
            uses.append(_column_use(sheet, column, role, describe(role)))
        elif column.lower() in ALONE_WORDS:
            uses.append(_column_use(sheet, column, "alone", f"{kind}{unit} of the job of the row alone"))
        else:
            uses.append(_column_use(sheet, column, of_row, f"{kind}{unit} of the victim beside the neighbour"))
    return (*uses, *_for_every_row(sheet, roles, given))


def uses_of_profiles(sheet: Sheet, roles: ColumnRoles) -> tuple[ColumnUse, ...]:
    """The columns of a sheet of jobs alone."""

    def meaning(role: str) -> str:
        if role == EXTRA:
            return "kept under its own name"
        if role == "throughput":
            return "steps/s alone, step_time_s = 1 / throughput"
        fact, scale = FACT_OF_ROLE.get(role, (role, 1.0))
        return fact if scale == 1.0 else f"{fact} = {scale:g} x the value"

    return tuple(_column_use(sheet, column, role, meaning(role)) for column, role in roles.role_of.items())


def _for_every_row(sheet: Sheet, roles: ColumnRoles, given: Conditions) -> tuple[ColumnUse, ...]:
    values = (("device_type", given.device_type), ("mode", given.mode), ("metric", given.metric))
    return tuple(
        ColumnUse(
            file=sheet.source.path.name,
            column="",
            role=role,
            meaning=f"{describe(role)}, for rows that name none",
            values=len(sheet.rows),
            example=value,
        )
        for role, value in values
        if value and not roles.column(role)
    )


def _column_use(sheet: Sheet, column: str, role: str, meaning: str) -> ColumnUse:
    cells = [row.fields[column] for row in sheet.rows if not is_empty(row.fields[column])]
    return ColumnUse(
        file=sheet.source.path.name,
        column=column,
        role=role,
        meaning=meaning,
        values=len(cells),
        example=cells[0] if cells else "",
    )
