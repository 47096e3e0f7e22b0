"""The device that runs the model: which one, what it can compute, and sessions on it.

resolution.py        the device to use, from the name in the settings
cuda.py              whether CUDA works here, proved by running a tiny model
driver.py            what NVIDIA's driver says about a GPU, and how threads wait for it
cores.py             how many cores this process may use, and the concurrency that follows
processor.py         the processor's or GPU's name and the features that decide how it multiplies
session.py           what a session is: its Protocol, runtimes and errors
opening.py           opens a session on ONNX Runtime or OpenVINO
openvino_session.py  a session on OpenVINO
"""
