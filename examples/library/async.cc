// Operators that return before their work is done: a thread of the library completes them, with
// success or failure. The second operator keeps data from run to run.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/async.cc -o libasync.so
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <opkit/op.hpp>
#include <thread>

using namespace opkit;

// The thread begins and ends with the library: a detached thread might run code that is unmapped
// already.
class Worker {
 public:
  ~Worker() {
    Do({});
    thread_.join();
  }
  void Do(UniqueFunction<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    wake_.notify_one();
  }

 private:
  void Loop() {
    for (std::unique_lock lock(mutex_);; lock.lock()) {
      wake_.wait(lock, [this] { return !queue_.empty(); });
      UniqueFunction<void()> work = std::move(queue_.front());
      queue_.pop_front();
      if (!work) return;
      lock.unlock();
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<UniqueFunction<void()>> queue_;  // an empty task ends the thread
  std::thread thread_{[this] { Loop(); }};
};
std::unique_ptr<Worker> worker;
void Initialize(int, int) { worker = std::make_unique<Worker>(); }
void Finalize() { worker.reset(); }
OPKIT_LIBRARY_INITIALIZE(Initialize);
OPKIT_LIBRARY_FINALIZE(Finalize);

Status Forward(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
               OpResource& res) {
  // The views and their memory stay valid until the operator is completed.
  worker->Do([x = in[0], y = out[0], identity = res.invocation(), done = res.defer()]() mutable {
    const OpAdoption adoption(identity);  // profiles count this thread's work for the operator
    for (int64_t i = 0; i < x.size(); ++i) {
      const float value = x.data<float>()[i];
      if (value < 0) return done.Fail(StrCat("element ", i, " is ", value, ": it has no root"));
      y.data<float>()[i] = std::sqrt(value);
    }
    done.Complete();  // destroyed without Complete, it fails the operator with a message
  });
  return SUCCESS;
}

// y is the sum of the inputs of all runs.
class RunningSum final : public StatefulOp {
 public:
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) override {
    worker->Do([this, x = in[0], y = out[0], done = res.defer()]() mutable {
      sums_.resize(static_cast<size_t>(x.size()));
      for (int64_t i = 0; i < x.size(); ++i)
        y.data<float>()[i] = sums_[static_cast<size_t>(i)] += x.data<float>()[i];
      done.Complete();  // call it last: `this` may be gone afterwards
    });
    return SUCCESS;
  }

 private:
  std::vector<float> sums_;  // one run at a time: no lock
};

Status InferShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}

REGISTER_OP(async_sqrt)
    .setForward(Forward)
    .async()
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
    })
    .setInferShape(InferShape)
    .doc("The square root of each element, by the library's own thread.");
REGISTER_OP(async_running_sum)
    .setCreateOpState([](const AttrMap&, StatefulOp** state) { *state = new RunningSum; })
    .async()
    .stateful()  // equal inputs give different sums
    .noGradient()
    .input("x", "numbers, of one shape in all runs", {DType::kFloat32})
    .output("sum")
    .setInferShape(InferShape)
    .doc("The sum of the inputs of all runs.");
