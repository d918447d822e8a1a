// Communication: one message or collective of a plan, as an operator hands it to a Communicator,
// which reads and writes its buffers and finishes it later on any thread.
#ifndef OPKIT_CLUSTER_COMMUNICATION_HPP_
#define OPKIT_CLUSTER_COMMUNICATION_HPP_

#include <atomic>
#include <utility>

#include "opkit/base/hook.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/core/tensor.hpp"
#include "opkit/device/event.hpp"
#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
// Adds a message that the invocation sent or received to the profile that is recorded.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(uint64_t invocation, const ProfileMessage& message)>
    g_record_message{"a profile of messages", "opkit/cluster/cluster_trace.hpp"};
}  // namespace detail

// The kinds of communication, with MPI's meaning (MPI 3.1, chapters 3 and 5). A block is `count`
// elements; n is the number of processes of the group.
enum class CommunicationKind : uint8_t {
  kSend,           // sends a block to `process`
  kReceive,        // receives a block from `process`
  kAllReduce,      // each process gets the reduction of the blocks of all
  kReduce,         // the root gets it
  kBroadcast,      // each process gets the block of the root
  kAllGather,      // each process gets the n blocks, in the order of the processes
  kGather,         // the root gets them
  kReduceScatter,  // each process has n blocks; process i gets the reduction of the i-th blocks
  kScatter,        // the root has n blocks; process i gets the i-th
  kAllToAll,       // each process has n blocks; process i gets the i-th block of each
  kBarrier,        // finishes when all processes have begun it
};
std::string_view ToString(CommunicationKind kind);

// How a reduction combines two elements.
enum class Reduction : uint8_t { kSum, kProduct, kMax, kMin };
std::string_view ToString(Reduction reduction);

// The parts of a communication that are the same in every run.
struct CommunicationPlan {
  CommunicationKind kind = CommunicationKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  // The result is the sum divided by the number of processes. A communicator divides only the
  // buffers of a device; the operator divides those of the CPU.
  bool is_mean = false;
  // The other process of a message, or the root of a collective.
  int process = -1;
  // The processes that take part in a collective, ascending; empty: all.
  std::vector<int> group = {};
  // A message: its number among the plan's messages. Messages of one channel between two processes
  // arrive in the order in which they are sent.
  // A collective: its place in the order in which the processes of the group begin the collectives
  // of a run, from 0; -1: each process begins its collectives in the order of its calls of Start.
  int64_t channel = -1;
  int64_t collectives = 0;  // the number of the group's collectives in a run of the plan
  // The receiver of a message takes its dtype and shape from the message (Allocate).
  bool is_dynamic = false;
};

// A communication that an operator starts in each of its runs. The operator and the communicator
// own it together: if the operator is destroyed before the communication ends, the communication
// still owns the memory of its buffers.
class Communication : public detail::RefCounted {
 public:
  explicit Communication(CommunicationPlan plan, std::string node)
      : plan_(std::move(plan)), node_(std::move(node)) {}

  const CommunicationPlan& plan() const { return plan_; }
  // Returns the node for messages, such as "AllReduce 'mean of W1' (G) -> (S)".
  const std::string& node() const { return node_; }

  // The buffers of a run, which the operator sets before Start: dense memory of the CPU, null where
  // the kind does not read or write. `count` is the number of elements of a block.
  DType dtype = DType::kUndefined;
  int64_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  // A dynamic message: the shape of the sender's tensor, and the receiver's tensor. Before Start
  // the latter may have memory that is to be used again.
  Shape shape;
  Tensor received;
  int64_t bytes() const { return BytesOf(count, dtype); }

  // A communication on a device. Its buffers are memory of the device, and are ready on `stream`, a
  // stream of the device's own kind; null: memory of the CPU. The communicator puts the
  // communication on the stream before Start returns. There is no Begin and no Finish: events of
  // the stream complete at its end, and `completion`, the operator's event, fails if the
  // communicator breaks before.
  void* stream = nullptr;
  detail::IntrusivePtr<EventState> completion = {};
  // The message of a Send or Recv in a profile: the invocation that runs it, 0 without a profile,
  // and what identifies the message. Start gives it its number.
  uint64_t invocation = 0;
  ProfileMessage message = {};
  // Adds the message to the profile, with success. Finish calls it, and so does the operator for a
  // communication on a device.
  void Record() const noexcept;

  // The blocks of a reduction on a device that are communicated together with the one above.
  struct Block {
    const void* input;
    void* output;
    int64_t count;
  };
  std::vector<Block> more = {};

  // The operator calls these functions.

  // Keeps the memory of a buffer until the run that begins next ends.
  void Keep(const Tensor& buffer) { buffers_.push_back(buffer); }
  // Begins a run. Its end completes `event`, if any. If the run succeeds, its end first calls
  // `finisher`, which may use nothing but the buffers.
  void Begin(detail::IntrusivePtr<EventState> event, UniqueFunction<void()> finisher = {});
  // True from Begin until Finish.
  bool is_pending() const { return is_pending_.load(std::memory_order_acquire); }

  // The communicator calls these functions.

  // Makes `received`, the tensor that a dynamic message brings, and returns its memory.
  void* Allocate(DType arrived, const Shape& arrived_shape);
  // Hands out the memory of the buffers, for a communicator that ends the run by Finish and goes on
  // using it.
  std::vector<Tensor> TakeBuffers() { return std::exchange(buffers_, {}); }
  // Ends the run, with success if `error` is null. Releases the buffers first. Called once for each
  // run, on any thread.
  void Finish(std::exception_ptr error);
  // True if the calling thread is inside Finish, in a callback of the event.
  static bool IsFinishing();

 private:
  const CommunicationPlan plan_;
  const std::string node_;
  std::vector<Tensor> buffers_;
  detail::IntrusivePtr<EventState> event_;
  UniqueFunction<void()> finisher_;
  // Release by Finish, acquire by the operator's next run: the next run sees the members as Finish
  // left them.
  std::atomic<bool> is_pending_ = false;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/communication.ipp"
#endif

#endif  // OPKIT_CLUSTER_COMMUNICATION_HPP_
