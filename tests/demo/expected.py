#!/usr/bin/env python3
"""Writes expected.json: the results of other programs for the demo's inputs.

usage: expected.py DATA_FOLDER RENDERER

Needs the packages magika 1.0.3, onnxruntime 1.31.1, numpy and opencv-python-headless. RENDERER is
the program demo_render_pictures. "files" holds made-up files (parts of a text or of bytes, each so
many times) with the label and score that the package magika gives them, and a hash of the numbers it
shows to its model (null where it shows it none). "pictures" holds what ONNX Runtime reads from the
test's pictures when they are prepared as the package rapidocr_onnxruntime does, and a hash of their
pixels.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import cv2
import magika
import numpy as np
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
CODE = "for (int i = 0; i < n; ++i) sum += values[i] * weights[i];\n"
SCRIPT = "def area(width, height):\n    return width * height\n\n\nprint(area(3, 4))\n"
FILES = {
    "nothing": [],
    "five letters": [["a b c", 1]],
    "two bytes that are no text": [[[255, 254], 1]],
    "seven letters": [["1234567", 1]],
    "eight letters": [["12345678", 1]],
    "spaces alone": [[" ", 100]],
    "a word behind white space": [["\n\t \r\v\f", 50], ["short", 1]],
    "seven letters between white space": [[" ", 9], ["1234567", 1], [" ", 9]],
    "white space inside seven letters": [["   1234 67   ", 1]],
    "a byte that is no text behind spaces": [[" ", 100], [[192], 1]],
    "a letter cut at the end of the block": [[" ", 4095], ["é", 1], [" ", 100]],
    "a letter that ends with the block": [[" ", 4094], ["é", 1], [" ", 100]],
    "a surrogate": [[" ", 20], [[237, 160, 128], 1]],
    "longer than it need be": [[" ", 20], [[192, 128], 1]],
    "longer than it need be, in three": [[" ", 20], [[224, 128, 128], 1]],
    "beyond Unicode": [[" ", 20], [[244, 144, 128, 128], 1]],
    "four bytes for a letter": [[" ", 20], ["🙂", 1]],
    "no second byte": [[" ", 20], ["é", 1], [[195], 1]],
    "zeros": [[[0], 300]],
    "zeros that are no white space": [[[0, 32], 2], [CODE, 3]],
    "1023 letters": [["abcdefghijk", 93]],
    "1025 letters": [["abcde", 205]],
    "as long as a block": [["0123456789abcde\n", 256]],
    "one more than a block": [["0123456789abcde\n", 256], ["x", 1]],
    "another beginning than end": [["# Notes\n\n", 1], ["A plain line of a document.\n", 300],
                                   ["* [link](https://example.org)\n", 40]],
    "code behind white space": [["\n \t", 700], [CODE, 60], ["\n", 2000]],
    "an end of white space": [[CODE, 40], [" \n", 2500]],
    "a beginning of white space": [[" \n", 2500], [SCRIPT, 20]],
    "a script": [["#!/usr/bin/env python3\n", 1], [SCRIPT, 2]],
    "a picture": [[[137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 8, 0, 0, 0,
                    8, 8, 2, 0, 0, 0, 75, 109, 41, 220], 1]],
    "a record": [['{"name": "value", "list": [1, 2, 3]}\n', 1]],
    "a query": [["select a, b from c where d;\n", 1]],
    "noise": [[[(i * i * 7 + i * 13 + i // 7) % 256 for i in range(512)], 1]],
    "noise again and again": [[[(i * 89 + i * i * 3) % 251 for i in range(97)], 60]],
    "words in no order": [["zeta lorem quux 17 ipsum; ", 3]],
}


def fnv(data):
    """The 64-bit hash FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def content_of(parts):
    return b"".join((part.encode() if isinstance(part, str) else bytes(part)) * count
                    for part, count in parts)


def files():
    identifier = magika.Magika()
    shown = []
    original = identifier._get_raw_predictions

    def record(features):
        shown.extend(of_file.beg + of_file.end for _, of_file in features)
        return original(features)

    identifier._get_raw_predictions = record
    for name, parts in FILES.items():
        shown.clear()
        found = identifier.identify_bytes(content_of(parts)).prediction
        print(f"  {name}: {found.output.label} {found.score:.4f}")
        hashed = fnv(np.array(shown[0], "<i4").tobytes()) if shown else None
        yield {"name": name, "parts": parts, "hash": hashed, "label": str(found.output.label),
               "score": found.score}


class Reader:
    def __init__(self, data):
        models = data / "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models"
        self.session = onnxruntime.InferenceSession(models / "ch_PP-OCRv4_rec_infer.onnx",
                                                    providers=["CPUExecutionProvider"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.characters = ["", *metadata["character"].splitlines(), " "]

    def read(self, picture):
        height, width = picture.shape[:2]
        widest = int(48 * max(320 / 48, width / height))
        resized = min(widest, math.ceil(48 * width / height))
        planes = np.zeros((1, 3, 48, widest), np.float32)
        pixels = cv2.resize(picture, (resized, 48)).astype(np.float32).transpose(2, 0, 1)
        planes[0, :, :, :resized] = (pixels / 255 - 0.5) / 0.5
        best = self.session.run(None, {"x": planes})[0][0].argmax(1)
        return "".join(self.characters[one] for one, before in zip(best, [0, *best])
                       if one != before)


def pictures(data, renderer):
    reader = Reader(data)
    with tempfile.TemporaryDirectory() as folder:
        listed = subprocess.run([renderer, folder], check=True, capture_output=True, text=True).stdout
        for line in listed.splitlines():
            path, _, text = line.split("\t")
            picture = cv2.imread(path)
            read = reader.read(picture)
            print(f"  {text} -> {read}")
            yield {"text": text, "hash": fnv(picture[:, :, ::-1].tobytes()), "read": read}


def main(data, renderer):
    expected = {
        "written_by": f"expected.py with magika {magika.__version__}, onnxruntime "
                      f"{onnxruntime.__version__}, opencv {cv2.__version__}",
        "files": list(files()),
        "pictures": list(pictures(pathlib.Path(data), renderer)),
    }
    lines = [f' "written_by": {json.dumps(expected["written_by"])}']
    for key in ("files", "pictures"):
        rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in expected[key])
        lines.append(f' "{key}": [\n{rows}\n ]')
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
