// The writer of ONNX models, compiled once: opkit::onnx.
#include "opkit/interop/impl/onnx_writer.ipp"
