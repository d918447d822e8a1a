#include "opkit/backends/cuda/dlpack.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"

namespace dlpack_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

// A stream of another library.
cudaStream_t MakeStream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}
bool IsIdle(cudaStream_t stream) {
  const cudaError_t status = cudaStreamQuery(stream);
  cudaGetLastError();
  return status == cudaSuccess;
}

}  // namespace

TEST_CASE("an exported tensor: the consumer's stream waits for the work of the current stream") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  Tensor x({2, 2}, DType::kFloat32, kCuda0);
  auto* data = static_cast<float*>(x.raw_mutable_data());
  data[3] = 0;
  auto gate = std::make_unique<fake::Gate>(context.cuda_stream());
  fake::Enqueue(context.cuda_stream(), [data] { data[3] = 7; });
  const cudaStream_t consumer = MakeStream();
  auto* managed = ToDLPackOnStream(x.Slice(0, 1, 2), consumer);
  CHECK(managed->version.major == 1);
  CHECK(managed->dl_tensor.device.device_type == 2);
  CHECK(managed->dl_tensor.shape[0] == 1);
  CHECK(managed->dl_tensor.data == data + 2);
  std::atomic<float> seen{-1};
  fake::Enqueue(consumer,
                [&, read = static_cast<const float*>(managed->dl_tensor.data)] { seen = read[1]; });
  CHECK(!IsIdle(consumer));
  gate.reset();
  REQUIRE(cudaStreamSynchronize(consumer) == cudaSuccess);
  CHECK(seen == 7);
  managed->deleter(managed);
}

TEST_CASE("an exported tensor is released after the work that its consumer issued") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  const cudaStream_t consumer = MakeStream();
  Tensor x({4}, DType::kFloat32, kCuda0);
  const Storage watch = x.storage();
  auto* managed = ToDLPackOnStream<dlpack::DLManagedTensor>(x, consumer);
  x = Tensor();
  CHECK(watch.use_count() > 1);
  fake::Gate gate(consumer);
  managed->deleter(managed);
  context.FinishDeviceComputation();
  CHECK(watch.use_count() > 1);
  gate.Open();
  fake::Await([&] { return watch.use_count() == 1; });
}

TEST_CASE("an imported tensor: the current stream waits for the work of the producer's") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(1);
  const cudaStream_t producer = MakeStream();
  const Tensor theirs({2}, DType::kFloat32, kCuda0);
  auto* data = static_cast<float*>(theirs.raw_mutable_data());
  data[0] = 0;
  auto gate = std::make_unique<fake::Gate>(producer);
  fake::Enqueue(producer, [data] { data[0] = 5; });
  const Tensor ours = FromDLPackOnStream(ToDLPack(theirs), producer);
  CHECK(ours.raw_data() == data);
  CHECK(ours.shape() == Shape{2});
  std::atomic<float> seen{-1};
  fake::Enqueue(context.cuda_stream(), [&, data] { seen = data[0]; });
  CHECK(!CUDAContext::IsStreamFree(kCuda0, 1));
  gate.reset();
  context.FinishDeviceComputation();
  CHECK(seen == 5);
}

TEST_CASE(
    "an imported tensor's deleter is called after the work of its stream and the current one") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  const Tensor theirs({2}, DType::kFloat32, kCuda0);
  const Storage& watch = theirs.storage();
  Tensor ours = FromDLPackOnStream(ToDLPackVersioned(theirs), MakeStream());
  fake::Gate imported(context.cuda_stream());
  context.SwitchToDevice(1);
  fake::Gate current(context.cuda_stream());
  ours = Tensor();
  CHECK(watch.use_count() == 2);
  std::atomic<bool> passed{false};  // set after earlier requests of the stream
  CUDAStream& of_import = CUDAStream::Get(kCuda0, 0);
  const detail::CUDAMark mark = of_import.Mark();
  of_import.WhenReached(mark, [&](cudaError_t) { passed = true; });
  imported.Open();
  fake::Await([&] { return passed.load(); });
  detail::CUDACompletions::Global().WaitUntilIdle();
  CHECK(watch.use_count() == 2);
  current.Open();
  fake::Await([&] { return watch.use_count() == 1; });
}

TEST_CASE("an import in the scope of a stream needs that stream no longer than the scope") {
  const cudaStream_t stream = MakeStream();
  const Tensor theirs({2}, DType::kFloat32, kCuda0);
  Tensor ours;
  {
    const CUDAStreamScope scope(kCuda0, stream);
    ours = FromDLPackOnStream(ToDLPack(theirs), MakeStream());
  }
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);  // the fake aborts if it is used from here on
  ours = Tensor();
  fake::Await([&] { return theirs.storage().use_count() == 1; });
}

TEST_CASE("what DLPack with streams cannot exchange is an error, and the caller keeps the tensor") {
  const Tensor host = Tensor::From<float>({1}, {1});
  CHECK_THROWS_WITH_AS(ToDLPackOnStream(host, nullptr),
                       "a tensor on cpu has no CUDA stream: exchange it without a stream", Error);
  CHECK_THROWS_WITH_AS(ToDLPackOnStream(Tensor(), nullptr), doctest::Contains("cannot export"),
                       Error);
  const Tensor x({1}, DType::kFloat32, kCuda0);
  CHECK_THROWS_WITH_AS(ToDLPackOnStream(x, cudaStreamPerThread),
                       doctest::Contains("create a stream"), Error);
  auto* of_host = ToDLPack(host);
  CHECK_THROWS_WITH_AS(FromDLPackOnStream(of_host, nullptr),
                       "a tensor on cpu has no CUDA stream: exchange it without a stream", Error);
  of_host->deleter(of_host);
  auto* managed = ToDLPackVersioned(x);
  managed->version.major = 2;
  CHECK_THROWS_WITH_AS(FromDLPackOnStream(managed, nullptr),
                       doctest::Contains("DLPack major version 2"), Error);
  managed->deleter(managed);
  CHECK(x.storage().use_count() == 1);
  CHECK_THROWS_WITH_AS(FromDLPackOnStream(static_cast<dlpack::DLManagedTensor*>(nullptr), nullptr),
                       doctest::Contains("null pointer"), Error);
}

}  // namespace dlpack_test
