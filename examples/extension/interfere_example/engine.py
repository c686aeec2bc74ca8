"""Tasks on threads of this process."""

from concurrent.futures import ThreadPoolExecutor, as_completed


def on_threads(work, inputs, tasks):
    """Yield each task with its document as soon as it is done."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = {pool.submit(work, inputs, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
