"""Answer queries on an SQLite table that come every 15 milliseconds."""

import random
import sqlite3
import time

random.seed(0)
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
database.executemany("INSERT INTO items VALUES (?, ?)", ((k, f"item {k}") for k in range(50_000)))
step = 0
while True:
    for _ in range(400):
        database.execute("SELECT name FROM items WHERE id = ?", (random.randrange(50_000),)).fetchone()
    time.sleep(0.015)
    step += 1
    print(f"step {step}", flush=True)
