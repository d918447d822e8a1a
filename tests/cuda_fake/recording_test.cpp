// Recording work of a CUDA device without a plan.
#include "opkit/backends/cuda/recording.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace recording_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

detail::IntrusivePtr<RecordedWork> Record(int streams, FunctionRef<void(WorkRecorder&)> issue) {
  return FindRecording(DeviceType::kCUDA)(kCuda0, streams, issue);
}
void LaunchAndWait(RecordedWork& work) {
  Event event(kCuda0);
  work.Launch({}, {}, event);
  event.Finish();
}

}  // namespace

TEST_CASE(
    "nothing runs while work is recorded, and each launch runs it in the order of the waits") {
  CUDAContext context(kCuda0);
  std::string ran;
  const auto add = [&](int stream, char letter) {
    context.SwitchToDevice(stream);
    fake::Enqueue(context.cuda_stream(), [&ran, letter] { ran += letter; });
  };
  const auto work = Record(3, [&](WorkRecorder& recorder) {
    add(0, 'a');
    recorder.Wait(2, recorder.Mark(0));
    add(2, 'b');
    recorder.Wait(1, recorder.Mark(2));
    add(1, 'c');
    recorder.Wait(0, recorder.Mark(1));
    add(0, 'd');
  });
  CHECK(ran.empty());
  CHECK(fake::graphs() == 1);
  LaunchAndWait(*work);
  CHECK(ran == "abcd");
  LaunchAndWait(*work);
  CHECK(ran == "abcdabcd");
}

TEST_CASE("after a recording the thread has its streams again, also after one that failed") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(1);
  CUDAStream* const own = CUDAStream::Current(0);
  Record(1, [&](WorkRecorder&) {
    context.SwitchToDevice(1);
    CHECK(&context.stream() != own);
  });
  CHECK(CUDAStream::Current(0) == own);
  CHECK_THROWS_WITH_AS(
      Record(2, [](WorkRecorder&) { throw Error(ErrorCode::kUnsupported, "not this"); }),
      "not this", Error);
  CHECK(CUDAStream::Current(0) == own);
  CHECK(&CUDAStream::Get(kCuda0, 1) == own);
  context.SwitchToDevice(1);
  CHECK(&context.stream() == own);
  CHECK(fake::graphs() == 0);
}

TEST_CASE(
    "an allocation fails a recording, and memory that is freed meanwhile is freed at its end") {
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  CHECK_THROWS_WITH_AS(Record(1, [](WorkRecorder&) { AllocateStorage(kCuda0, 64); }),
                       doctest::Contains("is recorded as a CUDA graph"), Error);
  fake::Await([&] { return allocator.live_bytes() == 0; });
  Storage memory = AllocateStorage(kCuda0, 64);
  const void* const data = memory->data();
  Record(1, [&](WorkRecorder&) {
    memory = {};
    CHECK(fake::DeviceOf(data) == 0);
  });
  fake::Await([&] { return fake::DeviceOf(data) == -1; });
}

TEST_CASE("a device that fails during a recording fails it, also if memory is freed at its end") {
  Storage memory = AllocateStorage(kCuda0, 64);
  CHECK_THROWS_WITH_AS(Record(1,
                              [&](WorkRecorder&) {
                                memory = {};
                                fake::FailDevice(cudaErrorIllegalAddress);
                              }),
                       doctest::Contains("an illegal memory access"), Error);
  fake::FailDevice(cudaSuccess);
  LaunchAndWait(*Record(1, [](WorkRecorder&) {}));
}

TEST_CASE("a recording inside of another one is refused, and the outer one goes on") {
  std::string ran;
  const auto work = Record(2, [&](WorkRecorder&) {
    CHECK_THROWS_WITH_AS(Record(1, [](WorkRecorder&) {}),
                         doctest::Contains("cannot begin inside of another recording"), Error);
    fake::Enqueue(CUDAStream::Get(kCuda0, 1).handle(), [&] { ran += 'a'; });
  });
  LaunchAndWait(*work);
  CHECK(ran == "a");
}

TEST_CASE("a call that CUDA cannot capture fails the recording, also if its error is ignored") {
  for (const bool ignores : {false, true})
    CHECK_THROWS_WITH_AS(
        Record(1,
               [&](WorkRecorder&) {
                 CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
                 if (ignores)
                   cudaStreamSynchronize(stream.handle()), cudaGetLastError();
                 else
                   stream.Synchronize();
               }),
        doctest::Contains(ignores ? "the capture of a CUDA graph failed" : "cudaStreamSynchronize"),
        Error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  const auto work = Record(1, [](WorkRecorder&) {});
  LaunchAndWait(*work);
}

TEST_CASE("the objects of a stream's slots exist before a recording captures the stream") {
  struct Handle {
    explicit Handle(cudaStream_t of) : recorded(detail::t_cuda_recording != nullptr), stream(of) {}
    bool recorded;
    cudaStream_t stream;
  };
  struct OtherHandle : Handle {
    using Handle::Handle;
  };
  CUDAStream::Get(kCuda0, 0).Slot<Handle>();
  // A type that only a stream of the program has, for another thread.
  std::thread([] { CUDAStream::Foreign(kCuda0, nullptr).Slot<OtherHandle>(); }).join();
  const auto check = [](const Handle& handle, const CUDAStream& stream) {
    CHECK(!handle.recorded);
    CHECK(handle.stream == stream.handle());
  };
  Record(2, [&](WorkRecorder&) {
    for (int id : {0, 1}) {
      CUDAStream& stream = CUDAStream::Get(kCuda0, id);
      check(stream.Slot<Handle>(), stream);
      check(stream.Slot<OtherHandle>(), stream);
    }
  });
}

TEST_CASE("a launch copies before and after the work, and Finish waits for it") {
  Tensor tensors[4];
  for (Tensor& tensor : tensors) {
    tensor = Tensor(kCuda0);
    Copy(Tensor::From<float>({1}, {7}), &tensor);
  }
  const auto work = Record(1, [&](WorkRecorder&) {
    fake::Enqueue(CUDAStream::Get(kCuda0, 0).handle(),
                  [from = tensors[1].data<float>(), to = tensors[2].mutable_data<float>()] {
                    *to = *from + 1;
                  });
  });
  const RecordedWork::Move before{tensors[1].raw_mutable_data(), tensors[0].raw_data(), 4};
  const RecordedWork::Move after{tensors[3].raw_mutable_data(), tensors[2].raw_data(), 4};
  Copy(Tensor::From<float>({1}, {20}), &tensors[0]);
  Event event(kCuda0);
  work->Launch({&before, 1}, {&after, 1}, event);
  event.Cancel();
  work->Finish();
  Tensor host;
  Copy(tensors[3], &host);
  CHECK(host.ToVector<float>() == std::vector<float>{21});
}

}  // namespace recording_test
