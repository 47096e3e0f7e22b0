"""The device that runs the model: which one, what it can compute, and sessions on it.

hardware.py    the device to use, and whether CUDA works here; the processor's name, features and cores
driver.py      what NVIDIA's driver says about a GPU, and how threads wait for it
sessions.py    what a session is, and opening one on ONNX Runtime or OpenVINO
"""
