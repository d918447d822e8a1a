// Runs models that differential.py sends, one after the other, on every backend that is built.
// Read from stdin, until it ends: bytes of a ModelProto, a count, and as many TensorProtos, one for
// each input of the graph. Written to stdout: for each backend its name and a count of outputs,
// then of each dtype, rank, extents and elements; the count is -1 where an Error's text follows.
// Numbers are int64, bytes and texts begin with their size.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "opkit/graph/executor.hpp"
#include "opkit/interop/onnx.hpp"
#include "support/backends.hpp"

namespace {

using opkit::Tensor;

int64_t ReadNumber() {
  int64_t number = 0;
  std::cin.read(reinterpret_cast<char*>(&number), sizeof number);
  return number;
}
std::string ReadBytes() {
  std::string bytes(static_cast<size_t>(ReadNumber()), '\0');
  std::cin.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
void WriteNumber(int64_t number) {
  std::cout.write(reinterpret_cast<const char*>(&number), sizeof number);
}
void WriteBytes(std::string_view bytes) {
  WriteNumber(static_cast<int64_t>(bytes.size()));
  std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
std::string_view BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.nbytes())};
}

// Runs twice: what an operator keeps from one run must not change the next, nor its inputs.
std::vector<Tensor> Run(const opkit::Graph& graph, const std::vector<std::string>& protos,
                        const opkit::PlanOptions& options) {
  std::vector<Tensor> first;
  std::vector<opkit::NamedTensor> inputs;
  for (size_t i = 0; i < protos.size(); ++i)
    inputs.push_back({graph.inputs()[i].name, opkit::ReadOnnxTensor(protos[i])});
  opkit::Executor executor(opkit::Compile(graph, options));
  for (const auto& [name, tensor] : executor.Run(inputs))
    first.push_back(OnHost(tensor).Contiguous());
  size_t o = 0;
  for (const auto& [name, tensor] : executor.Run(inputs))
    if (const Tensor& before = first[o++];
        tensor.shape() != before.shape() || BytesOf(OnHost(tensor).Contiguous()) != BytesOf(before))
      opkit::Throw(opkit::ErrorCode::kOperatorFailed, "'", name, "' differs in the second run");
  for (size_t i = 0; i < protos.size(); ++i)
    if (BytesOf(inputs[i].tensor) != BytesOf(opkit::ReadOnnxTensor(protos[i])))
      opkit::Throw(opkit::ErrorCode::kOperatorFailed, "'", inputs[i].name, "' was written to");
  return first;
}

void Answer(const Backend& backend, const std::string& model,
            const std::vector<std::string>& protos) {
  WriteBytes(backend.Name());
  const PreferredBackend preferred(backend);
  std::vector<Tensor> outputs;
  try {
    const opkit::Graph graph = opkit::ParseOnnxModel(model).graph;
    if (graph.inputs().size() != protos.size())
      opkit::Throw(opkit::ErrorCode::kInvalidArgument, "the graph has ", graph.inputs().size(),
                   " inputs, found ", protos.size());
    outputs = Run(graph, protos, preferred.options(/*threads=*/1));
  } catch (const std::exception& error) {
    WriteNumber(-1);
    return WriteBytes(error.what());
  }
  WriteNumber(static_cast<int64_t>(outputs.size()));
  for (const Tensor& output : outputs) {
    WriteBytes(ToString(output.dtype()));
    WriteNumber(output.rank());
    for (const int64_t extent : output.shape()) WriteNumber(extent);
    WriteBytes(BytesOf(output));
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  while (std::cin.peek() != EOF) {
    const std::string model = ReadBytes();
    std::vector<std::string> protos(static_cast<size_t>(ReadNumber()));
    for (std::string& proto : protos) proto = ReadBytes();
    const auto backends = Backends();
    WriteNumber(static_cast<int64_t>(backends.size()));
    for (const Backend& backend : backends) Answer(backend, model, protos);
    std::cout.flush();
  }
}
