from sharding.harness import Case, normal, offered


def test_x() -> None:
    assert len(offered(Case("MatMul", [normal(2, 4, 8), normal(8, 8)]), (2, 2))) == 48
