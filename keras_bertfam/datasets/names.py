"""Tasks by their names."""

import dataclasses

from keras_bertfam.datasets.table import TASKS
from keras_bertfam.datasets.task_data import TaskData


def get_task(name: str | TaskData) -> TaskData:
    """Find the `TaskData` of a name: the library's, or that of `tensorflow_datasets`.

    Args:
        name: str, such as `"sst2"`, `"glue/sst2"`, `"squad/v2.0"`,
            `"wikipedia/20230601.de"`; or a `TaskData`, which is returned.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: for an unknown name.
    """
    if isinstance(name, TaskData):
        return name
    if name in TASKS:
        return TASKS[name]
    for task in TASKS.values():
        if name in task.source:
            return dataclasses.replace(task, source=(name,))
    family = name.split("/")[0]
    if "/" in name and family in TASKS and TASKS[family].kind == "text":
        return dataclasses.replace(TASKS[family], source=(name,))
    raise ValueError(
        f"`name` must be one of {sorted(TASKS)}, or the name of one of them in "
        f"tensorflow_datasets. Received: {name!r}."
    )
