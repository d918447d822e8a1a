// FunctionBody: one instance of a function operator, for any device. It calls the record's
// functions with views of the operator's tensors. A run with the shapes of the previous run
// allocates nothing.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_

#include "opkit/op/function_op.hpp"
#include "opkit/op/operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The services of a context that a run's functions use.
struct FunctionDeviceLink {
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void*, UniqueFunction<void()>) = nullptr;
  void (*drain)(void*) = nullptr;  // waits for all issued work; null if none can be unfinished
};

// The interface by which SetOutputReq reaches a function operator.
class FunctionRequests {
 public:
  virtual ~FunctionRequests() = default;
  virtual void SetOutputReq(int output, OpReq req) = 0;
};

// The interface of RecordBody, so that FunctionOperator<Context> compiles without it.
class FunctionBody {
 public:
  static std::unique_ptr<FunctionBody> Make(OperatorBase& op, FunctionRecord record,
                                            FunctionPass pass, size_t device);
  virtual ~FunctionBody() = default;

  // Throws kOutOfRange for an output that the node does not have.
  virtual void SetReq(int output, OpReq req) = 0;
  // True if a run may end after Run has returned.
  virtual bool is_async() const = 0;
  // Sets the link: once for a device whose link never changes, else before each run.
  virtual void SetLink(const FunctionDeviceLink& link) = 0;
  virtual void Run() = 0;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/function/impl/function_body.ipp"
#endif

#endif  // OPKIT_OP_FUNCTION_FUNCTION_BODY_HPP_
