"""What drivers raise becomes a kind of failure with its reason, whatever class the driver puts it in."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable


@pytest.mark.parametrize("catalog_kind", ["postgresql"], indirect=True)
def test_a_postgresql_that_is_read_only_is_unavailable_for_writers_and_answers_readers(catalog_url: str) -> None:
    engine = sa.create_engine(catalog_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        name = sa.make_url(catalog_url).database
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    engine.dispose()
    database = CatalogDatabase(catalog_url)
    try:
        with (
            pytest.raises(Unavailable, match=r"does not answer now \(it takes no writes"),
            database.transaction() as repository,
        ):
            repository.databases.create("shop", {})
        with database.reading() as repository:
            assert list(repository.databases.page(after=None, limit=1)) == []
    finally:
        database.close()
