"""Insert rows into an SQLite table and sum them up, one transaction a step."""

import random
import sqlite3

random.seed(0)
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE orders (customer INTEGER, amount REAL)")
database.execute("CREATE INDEX by_customer ON orders (customer)")
step = 0
while True:
    rows = [(random.randrange(5_000), random.random()) for _ in range(2_000)]
    with database:
        database.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    database.execute("SELECT customer, SUM(amount) FROM orders GROUP BY customer ORDER BY 2 DESC LIMIT 10").fetchall()
    with database:
        database.execute("DELETE FROM orders WHERE rowid <= (SELECT MAX(rowid) FROM orders) - 20000")
    step += 1
    print(f"step {step}", flush=True)
