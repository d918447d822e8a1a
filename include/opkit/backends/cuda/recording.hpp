// Records work of a CUDA device as a CUDA graph, for device/recorded_work.hpp. Including this
// header registers it for kCUDA.
#ifndef OPKIT_BACKENDS_CUDA_RECORDING_HPP_
#define OPKIT_BACKENDS_CUDA_RECORDING_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/event.hpp"
#include "opkit/backends/cuda/stream.hpp"
#include "opkit/device/recorded_work.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A CUDA graph that can be launched.
class CUDAGraphWork final : public RecordedWork {
 public:
  // Owns the executable graph from now on. `kept` are the objects that its host functions use.
  CUDAGraphWork(Device device, cudaGraphExec_t executable, RefCountedList kept)
      : device_(device), executable_(executable), kept_(std::move(kept)) {}
  ~CUDAGraphWork() override {
    CUDADeviceGuard guard;
    if (guard.Enter(device_.index) != cudaSuccess ||
        cudaGraphExecDestroy(executable_) != cudaSuccess)
      cudaGetLastError();
  }

  void Launch(std::span<const Move> before, std::span<const Move> after, Event& event) override {
    CUDAStream& stream = CUDAStream::Get(device_, 0);
    stream.CheckNotCapturing();
    MakeCUDADeviceCurrent(device_.index);
    CUDAStream::SetCurrent(stream);
    launched_on_ = &stream;
    try {
      Issue(before);
      OPKIT_CUDA_CHECK(cudaGraphLaunch(executable_, stream.handle()));
      Issue(after);
      CheckCUDALaunches();
      if (stream.is_foreign()) mark_ = stream.Mark();
      static_cast<CUDAEventState&>(*event.state()).Record(stream);
    } catch (...) {
      try {
        stream.Synchronize();   // the caller need not keep the memory
      } catch (const Error&) {  // the device accepts no more work
      }
      throw;
    }
  }
  void Finish() noexcept override {
    if (!launched_on_) return;
    CUDADeviceGuard guard;
    cudaError_t status = guard.Enter(device_.index);
    if (status == cudaSuccess)
      status = launched_on_->is_foreign() ? mark_.Synchronize()  // the stream may be gone
                                          : cudaStreamSynchronize(launched_on_->handle());
    if (status != cudaSuccess) cudaGetLastError();  // the event of the launch fails with it
  }

 private:
  void Issue(std::span<const Move> moves) {
    for (const Move& move : moves)
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(move.to, move.from, static_cast<size_t>(move.bytes),
                                       cudaMemcpyDeviceToDevice, launched_on_->handle()));
  }

  const Device device_;
  const cudaGraphExec_t executable_;
  const RefCountedList kept_;
  CUDAStream* launched_on_ = nullptr;
  CUDAMark mark_;  // behind the latest launch, if that was on a foreign stream
};

// A recording of the calling thread's work. It captures streams that only this thread uses
// meanwhile, from Begin to Take, or to the destructor if an exception skips Take.
class CUDARecording final : public WorkRecorder {
 public:
  CUDARecording(Device device, int streams)
      : events_(CUDAEventPool::Get(device.index, false)),
        current_(CUDAStream::OfThisThread(device).current) {
    state_.device = device;
    for (int id = 0; id < streams; ++id) state_.streams.push_back(TakeStream(device));
  }
  CUDARecording(const CUDARecording&) = delete;
  CUDARecording& operator=(const CUDARecording&) = delete;
  ~CUDARecording() {
    Graph dropped;
    Stop(dropped);
    for (cudaEvent_t event : marks_) events_.Give(event);
    IdleStreams& idle = Idle();
    std::lock_guard lock(idle.mutex);
    for (CUDAStream* stream : state_.streams) idle.by_device[state_.device.index].push_back(stream);
  }

  void Begin() {
    if (t_cuda_recording)
      Throw(ErrorCode::kUnsupported, "a recording cannot begin inside of another recording");
    MakeCUDADeviceCurrent(state_.device.index);
    for (CUDAStream* stream : state_.streams) stream->MakeSlots();
    // In this mode CUDA lets other threads allocate during the capture, but not this thread.
    OPKIT_CUDA_CHECK(cudaStreamBeginCapture(HandleOf(0), cudaStreamCaptureModeThreadLocal));
    t_cuda_recording = &state_;
    const int begin = Mark(0);
    for (int id = 1; id < streams(); ++id) Wait(id, begin);
  }
  int Mark(int stream) override {
    marks_.push_back(events_.Take(state_.device.index, false));
    OPKIT_CUDA_CHECK(cudaEventRecord(marks_.back(), HandleOf(stream)));
    return static_cast<int>(marks_.size()) - 1;
  }
  void Wait(int stream, int mark) override {
    OPKIT_CUDA_CHECK(cudaStreamWaitEvent(HandleOf(stream), marks_[Index(mark)], 0));
  }
  // Ends the capture and returns its work, which includes the work of all streams.
  IntrusivePtr<RecordedWork> Take() {
    CheckCUDALaunches();
    for (int id = 1; id < streams(); ++id) Wait(0, Mark(id));
    Graph graph;
    Stop(graph);
    if (graph.status != cudaSuccess) throw CUDAError(graph.status, "the capture of a CUDA graph");
    cudaGraphExec_t executable = nullptr;
    OPKIT_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.handle, 0));
    return MakeIntrusive<CUDAGraphWork>(state_.device, executable, std::move(state_.kept));
  }

 private:
  struct Graph {
    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph() {
      if (handle && cudaGraphDestroy(handle) != cudaSuccess) cudaGetLastError();
    }
    cudaGraph_t handle = nullptr;
    cudaError_t status = cudaSuccess;
  };
  // The streams of recordings that have ended, for the next ones. Streams are never destroyed.
  struct IdleStreams {
    std::mutex mutex;
    std::map<int, std::vector<CUDAStream*>> by_device;
  };
  static IdleStreams& Idle() {
    static auto* idle = new IdleStreams;
    return *idle;
  }
  static CUDAStream* TakeStream(Device device) {
    {
      IdleStreams& idle = Idle();
      std::lock_guard lock(idle.mutex);
      std::vector<CUDAStream*>& streams = idle.by_device[device.index];
      if (!streams.empty()) {
        CUDAStream* const stream = streams.back();
        streams.pop_back();
        return stream;
      }
    }
    return CUDAStream::MakeUnshared(device);
  }

  int streams() const { return static_cast<int>(state_.streams.size()); }
  cudaStream_t HandleOf(int id) const { return state_.streams[Index(id)]->handle(); }
  // Ends the capture, if it has begun and has not ended yet. Then calls what waits for its end.
  void Stop(Graph& graph) {
    if (t_cuda_recording != &state_) return;
    graph.status = cudaStreamEndCapture(HandleOf(0), &graph.handle);
    if (graph.status != cudaSuccess) cudaGetLastError();
    t_cuda_recording = nullptr;
    CUDAStream::OfThisThread(state_.device).current = current_;
    for (UniqueFunction<void()>& call : state_.after) call();
  }

  CUDARecordingState state_;
  CUDAEventPool& events_;
  CUDAStream* const current_;  // the thread's current stream before the recording
  std::vector<cudaEvent_t> marks_;
};

inline IntrusivePtr<RecordedWork> RecordCUDAWork(Device device, int streams,
                                                 FunctionRef<void(WorkRecorder&)> issue) {
  CUDARecording recording(device, streams);
  recording.Begin();
  issue(recording);
  return recording.Take();
}
[[maybe_unused]] inline const bool kRecordsCUDAWork =
    RegisterRecording(DeviceType::kCUDA, &RecordCUDAWork);

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_RECORDING_HPP_
