// DispatchHelper: selects a template member of an operator by a tensor's dtype or by a number.
// Caffe2's spelling of DispatchDType, for operators written as classes.
#ifndef OPKIT_COMPAT_DISPATCH_HELPER_HPP_
#define OPKIT_COMPAT_DISPATCH_HELPER_HPP_

#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The element types for which an operator has code. GenericTensorImplementation as the last type
// sends every other dtype to DoRunWithOtherType.
template <class... Types>
struct TensorTypes {};
struct GenericTensorImplementation {};

// The numbers that an operator has special code for.
template <int64_t... Values>
struct FixedValues {};

// Calls the member for a dtype or number. Used in RunOnDevice; the called members must be public.
// Extra types come before the selected type:
//
//   bool RunOnDevice() override {
//     return DispatchHelper<TensorTypes<float, double>>::call(this, Input(0));
//   }
//   template <class T> bool DoRunWithType();
//
//   return DispatchHelper<FixedValues<1, 2, 4>>::call(this, block_size_);
//   template <int64_t N> bool DoRunWithValue();          // N is -1 for any other number
template <class Cases, class... Extra>
struct DispatchHelper;

template <class... Types, class... Extra>
struct DispatchHelper<TensorTypes<Types...>, Extra...> {
  // Throws kTypeMismatch, listing the supported dtypes, for any other dtype.
  template <class Op>
  static bool call(Op* op, const Tensor& tensor) {
    return call(op, tensor.dtype(), &tensor);
  }
  // `tensor`, if not null, is the subject of an Error.
  template <class Op>
  static bool call(Op* op, DType dtype, const Tensor* tensor = nullptr) {
    bool (*call)(Op*) = nullptr;
    ((!call && (std::is_same_v<Types, GenericTensorImplementation> || dtype == kDTypeOf<Types>)
          ? void(call = &Call<Types, Op>)
          : void()),
     ...);
    if (!call) [[unlikely]]
      Unsupported(*op, dtype, tensor);
    return call(op);
  }

 private:
  template <class T, class Op>
  static bool Call(Op* op) {
    if constexpr (std::is_same_v<T, GenericTensorImplementation>) {
      return op->template DoRunWithOtherType<Extra...>();
    } else {
      static_assert(Element<T>, "TensorTypes<...> lists element types, such as float or int64_t");
      return op->template DoRunWithType<Extra..., T>();
    }
  }
  [[noreturn]] OPKIT_COLD static void Unsupported(const OperatorBase& op, DType dtype,
                                                  const Tensor* tensor) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("operator ", op.type(), " has no code for dtype ", dtype, "; it supports ",
                       std::vector<std::string>{ToString(kDTypeOf<Types>)...}),
                tensor);
  }
};

template <int64_t... Values, class... Extra>
struct DispatchHelper<FixedValues<Values...>, Extra...> {
  template <class Op>
  static bool call(Op* op, int64_t value) {
    bool (*call)(Op*) = &Call<-1, Op>;
    ((value == Values ? void(call = &Call<Values, Op>) : void()), ...);
    return call(op);
  }

 private:
  template <int64_t Value, class Op>
  static bool Call(Op* op) {
    return op->template DoRunWithValue<Extra..., Value>();
  }
};

}}  // namespace opkit

#endif  // OPKIT_COMPAT_DISPATCH_HELPER_HPP_
