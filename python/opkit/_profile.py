"""Profiles: opkit.profile."""
import html
import os
import tempfile

from . import _core


class profile:
    """Records where time goes while the block runs.

    >>> with opkit.profile() as report:
    ...     opkit.ops.Relu(x)
    >>> print(report)                   # a table
    >>> report.save("report.html")      # or .json (Chrome trace) or .pftrace (Perfetto)

    In a notebook, the object shows the report's page. Custom operators have rows for their own code, and
    rows "MyOp::Relu" for the operators that they call.

    shapes: records the shapes of inputs, and operations and bytes.
    memory: records each allocation of tensors' memory.
    """

    def __init__(self, *, shapes=False, memory=False):
        self._options = {"shapes": shapes, "memory": memory}
        self._recording = None

    def __enter__(self):
        self._recording = None
        _core.start_profile(**self._options)
        return self

    def __exit__(self, *failure):
        self._recording = _core.stop_profile()

    @property
    def recording(self):
        if self._recording is None:
            raise RuntimeError("the profile has no recording: read it after its with block")
        return self._recording

    def rows(self, by_node=False):
        """The table as a list of dicts: name, domain, count, total_ns, self_ns, min_ns, max_ns."""
        return self.recording.rows(by_node)

    def save(self, path):
        """Writes the report (.html), or a trace (.json, .pftrace). Returns the path."""
        return self.recording.save(os.fspath(path))

    def __str__(self):
        return "a profile without a recording" if self._recording is None else \
            self._recording.table()

    def _repr_html_(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.save(os.path.join(folder, "report.html"))
            with open(path, encoding="utf-8") as page:
                text = page.read()
        return (f'<iframe srcdoc="{html.escape(text)}" width="100%" height="640" '
                'style="border: 0"></iframe>')
