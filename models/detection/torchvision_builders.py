"""torchvision's detectors by builder name, with weights from an enum or a file.

The network is always built without weights, then filled: so an enum and a file take the same way,
and the class count may differ from that of the weights.
"""
