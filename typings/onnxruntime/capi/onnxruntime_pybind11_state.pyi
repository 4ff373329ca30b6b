from typing import Any

# Operators are described by classes of C++ that have no names of their own.
def get_all_operator_schema() -> list[Any]: ...
