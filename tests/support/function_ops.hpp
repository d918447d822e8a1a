// Functions with which most function operators of the tests are registered.
#ifndef OPKIT_TESTS_SUPPORT_FUNCTION_OPS_HPP_
#define OPKIT_TESTS_SUPPORT_FUNCTION_OPS_HPP_

#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "opkit/op/function/function_operator.hpp"

using OpIns = std::span<const opkit::OpTensor>;
using OpOuts = std::span<opkit::OpTensor>;

// Gives every output the shape of the first input.
inline int SameShape(const opkit::AttrMap&, opkit::ShapeVectors& in, opkit::ShapeVectors& out) {
  for (auto& shape : out) shape = in[0];
  return opkit::SUCCESS;
}
inline int OneToOne(const opkit::AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return opkit::SUCCESS;
}

// An operator's function whose body each test assigns. The body may return void.
class TestBody {
 public:
  template <class F>
  void operator=(F body) {
    body_ = [body = std::move(body)](OpIns in, OpOuts out,
                                     opkit::OpResource& res) mutable -> opkit::Status {
      using Result = std::invoke_result_t<F&, OpIns, OpOuts, opkit::OpResource&>;
      if constexpr (std::is_void_v<Result>) {
        body(in, out, res);
        return opkit::SUCCESS;
      } else {
        return body(in, out, res);
      }
    };
  }
  opkit::Status operator()(OpIns in, OpOuts out, opkit::OpResource& res) {
    return body_(in, out, res);
  }

 private:
  std::function<opkit::Status(OpIns, OpOuts, opkit::OpResource&)> body_;
};

inline TestBody g_body;  // the body that CallBody runs
inline opkit::Status CallBody(const opkit::AttrMap&, OpIns in, OpOuts out, opkit::OpResource& res) {
  return g_body(in, out, res);
}

#endif  // OPKIT_TESTS_SUPPORT_FUNCTION_OPS_HPP_
