"""The device that runs the model: which one, what it can compute, and sessions on it.

resolution.py  the device to use, from the name in the settings, and whether CUDA works here driver.py      what NVIDIA's
driver says about a GPU, and how threads wait for it processor.py   the processor's or GPU's name, its features, how many
cores this process may use, and the concurrency sessions.py    what a session is, and opening one on ONNX Runtime or OpenVINO
"""
