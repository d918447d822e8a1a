// The signatures that function operators may have, read at compile time and adapted to one
// type-erased form each. The fast forms are called directly; the other forms copy maps and vectors
// at every call.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/function/attr_map.hpp"
#include "opkit/op/function/function_parameters.hpp"
#include "opkit/op/function/state_of_inputs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct KernelQuery;
struct FusionQuery;
struct FusedNode;

using ForwardFunction = UniqueFunction<OpStatus(const AttrMap&, std::span<const OpTensor>,
                                                std::span<OpTensor>, OpResource&)>;
using ParseAttrsFunction = UniqueFunction<OpStatus(const AttrMap&, int* num_in, int* num_out)>;
using InferTypeFunction =
    UniqueFunction<OpStatus(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out)>;
using InferShapeFunction =
    UniqueFunction<OpStatus(const AttrMap&, ShapeVectors& in, ShapeVectors& out)>;
using MutateInputsFunction = UniqueFunction<OpStatus(const AttrMap&, std::vector<int>& inputs)>;
// Makes the state of an operator. The state may keep references to the attributes, and what the
// context points to: both live as long as the operator.
using CreateStateFunction =
    UniqueFunction<OpStatus(const AttrMap&, const OpContext&, detail::IntrusivePtr<StatefulOp>&)>;
using ScratchFunction = UniqueFunction<int64_t(const AttrMap&, const ShapeVectors& in)>;
using FlopsFunction =
    UniqueFunction<uint64_t(const AttrMap&, const ShapeVectors& in, const ShapeVectors& out)>;

namespace detail {

// True for a parameter that takes attributes: const AttrMap&, or a map of strings by value or const
// reference.
template <class P>
constexpr bool IsAttrs() {
  using Map = std::remove_cvref_t<P>;
  constexpr bool kReadOnly =
      !std::is_reference_v<P> ||
      (std::is_lvalue_reference_v<P> && std::is_const_v<std::remove_reference_t<P>>);
  if constexpr (std::is_same_v<Map, AttrMap>)
    return kReadOnly && std::is_reference_v<P>;
  else
    return kReadOnly && StringMap<Map>;
}
template <class P>
const std::remove_cvref_t<P>& PassAttrs(const AttrMap& attrs) {
  using Map = std::remove_cvref_t<P>;
  if constexpr (std::is_same_v<Map, AttrMap>)
    return attrs;
  else
    return attrs.As<Map>();
}

// True for a parameter that takes tensors: a span, or a vector by value, reference or pointer.
template <class P, bool kInputs>
inline constexpr bool kIsTensors =
    std::is_same_v<std::remove_cvref_t<P>, std::span<const OpTensor>> ||
    (!kInputs && std::is_same_v<std::remove_cvref_t<P>, std::span<OpTensor>>) ||
    (kIsPassed<P> && std::is_same_v<Pointee<P>, std::vector<OpTensor>>);

template <class P>
class TensorsArg {
  static constexpr bool kCopies = std::is_same_v<Pointee<P>, std::vector<OpTensor>>;

 public:
  template <class Span>
  explicit TensorsArg(Span tensors) : items_(tensors.begin(), tensors.end()) {}
  decltype(auto) Get() {
    if constexpr (kCopies)
      return PassAs<P>(items_);
    else
      return (items_);
  }

 private:
  std::conditional_t<kCopies, Pointee<P>, std::remove_cvref_t<P>> items_;
};

// True for a parameter that takes types: as DType, or as int with -1 for unknown.
template <class P>
inline constexpr bool kIsTypes = kIsPassed<P> && (std::is_same_v<Pointee<P>, std::vector<int>> ||
                                                  std::is_same_v<Pointee<P>, std::vector<DType>>);
template <class P>
class TypesArg {
 public:
  TypesArg(const std::vector<DType>& types, const char*) {
    for (DType type : types) {
      const bool unknown = std::is_same_v<Item, int> && type == DType::kUndefined;
      items_.push_back(unknown ? static_cast<Item>(-1) : static_cast<Item>(type));
    }
  }
  P Get() { return PassAs<P>(items_); }
  void Store(std::vector<DType>& types, const char* what) const {
    if constexpr (kIsWritable<P>) {
      types.clear();
      for (size_t i = 0; i < items_.size(); ++i) {
        const int type = static_cast<int>(items_[i]);
        if (type < -1 || type >= kNumPlainDTypes)
          Throw(ErrorCode::kInvalidArgument, "inferType says ", type, " for ", what, " ", i,
                ", which is no DType; -1 is unknown");
        types.push_back(type < 0 ? DType::kUndefined : static_cast<DType>(type));
      }
    }
  }

 private:
  using Item = typename Pointee<P>::value_type;
  std::vector<Item> items_;
};

// True for a parameter that takes shapes, of int64_t or unsigned int. An unknown extent is -1 in
// both: 4294967295 as unsigned int.
template <class P>
inline constexpr bool kIsShapes =
    kIsPassed<P> && (std::is_same_v<Pointee<P>, ShapeVectors> ||
                     std::is_same_v<Pointee<P>, std::vector<std::vector<unsigned int>>>);
template <class P>
class ShapesArg {
  using Extent = typename Pointee<P>::value_type::value_type;
  static constexpr bool kNarrow = std::is_same_v<Extent, unsigned int>;
  static constexpr int64_t kUnknownNarrow = 0xffffffff;

 public:
  ShapesArg(const ShapeVectors& shapes, const char* what) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      auto& item = items_.emplace_back();
      for (int64_t extent : shapes[i]) {
        if (kNarrow && extent >= kUnknownNarrow)
          Throw(ErrorCode::kOutOfRange, "extent ", extent, " of ", what, " ", i,
                " does not fit in "
                "unsigned int; write the function with std::vector<std::vector<int64_t>>");
        item.push_back(static_cast<Extent>(extent));
      }
    }
  }
  P Get() { return PassAs<P>(items_); }
  void Store(ShapeVectors& shapes, const char* what) const {
    if constexpr (kIsWritable<P>) {
      shapes.clear();
      for (size_t i = 0; i < items_.size(); ++i) {
        auto& shape = shapes.emplace_back();
        for (Extent item : items_[i]) {
          const auto extent = static_cast<int64_t>(item);
          if (extent < -1)
            Throw(ErrorCode::kInvalidArgument, "inferShape says extent ", extent, " for ", what,
                  " ", i, "; -1 is unknown");
          shape.push_back(kNarrow && extent == kUnknownNarrow ? -1 : extent);
        }
      }
    }
  }

 private:
  Pointee<P> items_;
};

template <class P>
inline constexpr bool kIsResource =
    !std::is_rvalue_reference_v<P> && std::is_same_v<std::remove_cvref_t<P>, OpResource>;

// The overloads that AdaptTo calls (function_parameters.hpp).
template <class F, class A, class I, class O, class R>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTensors<I, true> &&
           kIsTensors<O, false> && kIsResource<R>)
ForwardFunction Adapt(As<ForwardFunction>, F f, TypeList<A, I, O, R>) {
  return [f = std::move(f)](const AttrMap& attrs, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource& resource) mutable -> OpStatus {
    TensorsArg<I> in(inputs);
    TensorsArg<O> out(outputs);
    return CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get(), resource);
  };
}
template <class F, class A>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>())
ParseAttrsFunction Adapt(As<ParseAttrsFunction>, F f, TypeList<A, int*, int*>) {
  return [f = std::move(f)](const AttrMap& attrs, int* num_in, int* num_out) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), num_in, num_out);
  };
}
template <class List, class A, class In, class Out, class F>
auto AdaptInference(F f) {
  return [f = std::move(f)](const AttrMap& attrs, List& inputs, List& outputs) mutable {
    In in(inputs, "input");
    Out out(outputs, "output");
    OpStatus status = CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get());
    if (status.ok()) in.Store(inputs, "input"), out.Store(outputs, "output");
    return status;
  };
}
template <class F, class A, class I, class O>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTypes<I> && kIsTypes<O> &&
           kIsWritable<O>)
InferTypeFunction Adapt(As<InferTypeFunction>, F f, TypeList<A, I, O>) {
  return AdaptInference<std::vector<DType>, A, TypesArg<I>, TypesArg<O>>(std::move(f));
}
template <class F, class A, class I, class O>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I> && kIsShapes<O> &&
           kIsWritable<O>)
InferShapeFunction Adapt(As<InferShapeFunction>, F f, TypeList<A, I, O>) {
  return AdaptInference<ShapeVectors, A, ShapesArg<I>, ShapesArg<O>>(std::move(f));
}
template <class F, class A, class I>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsPassed<I> && kIsWritable<I> &&
           std::is_same_v<Pointee<I>, std::vector<int>>)
MutateInputsFunction Adapt(As<MutateInputsFunction>, F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, std::vector<int>& inputs) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), PassAs<I>(inputs));
  };
}
template <class P>
inline constexpr bool kIsStateOwner = false;
// True if P is a std::unique_ptr<StatefulOp>*; recognised by its members, so that <memory> is not
// included.
template <class P>
  requires requires(P* owner) {
    requires std::is_same_v<typename P::element_type, StatefulOp>;
    requires std::is_same_v<decltype(owner->release()), StatefulOp*>;
  }
inline constexpr bool kIsStateOwner<P*> = true;
template <class P>
inline constexpr bool kIsStateOut = std::is_same_v<P, StatefulOp**> || kIsStateOwner<P>;

// Receives the state that a function makes. Adopts the state at once, so that it is freed also if
// the function fails after making it.
template <class P>
class StateOut {
 public:
  explicit StateOut(IntrusivePtr<StatefulOp>& owner) : owner_(owner) {}
  ~StateOut() {
    if constexpr (std::is_pointer_v<Made>) {
      if (made_) owner_ = IntrusivePtr<StatefulOp>(made_);
    } else if (made_) {
      owner_ = IntrusivePtr<StatefulOp>(made_.release());
    }
  }
  P Get() { return &made_; }

 private:
  using Made = std::remove_pointer_t<P>;
  IntrusivePtr<StatefulOp>& owner_;
  Made made_{};
};
template <class P>
inline constexpr bool kIsOpContext =
    std::is_same_v<std::remove_cvref_t<P>, OpContext> &&
    (!std::is_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>);
template <class F, class A, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext&,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), made.Get());
  };
}
template <class F, class A, class C, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsOpContext<C> && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, C, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext& context,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), context, made.Get());
  };
}
template <class F, class A, class C, class I, class T, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsOpContext<C> && kIsShapes<I> &&
           kIsTypes<T> && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, C, I, T, S>) {
  return [shared = MakeIntrusive<Shared<F>>(std::move(f))](
             const AttrMap& attrs, const OpContext& context, IntrusivePtr<StatefulOp>& state) {
    state = MakeIntrusive<StateOfInputs>([shared, &attrs, context](const ShapeVectors& shapes,
                                                                   const std::vector<DType>& types,
                                                                   IntrusivePtr<StatefulOp>& made) {
      ShapesArg<I> in_shapes(shapes, "input");
      TypesArg<T> in_types(types, "input");
      StateOut<S> out(made);
      return CallForStatus(shared->value, PassAttrs<A>(attrs), context, in_shapes.Get(),
                           in_types.Get(), out.Get());
    });
    return OpStatus();
  };
}
template <class F, class A, class I>
  requires(std::is_integral_v<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I>)
ScratchFunction Adapt(As<ScratchFunction>, F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, const ShapeVectors& inputs) mutable {
    ShapesArg<I> in(inputs, "input");
    return static_cast<int64_t>(f(PassAttrs<A>(attrs), in.Get()));
  };
}
template <class F, class A, class I, class O>
  requires(std::is_integral_v<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I> && kIsShapes<O>)
FlopsFunction Adapt(As<FlopsFunction>, F f, TypeList<A, I, O>) {
  return [f = std::move(f)](const AttrMap& attrs, const ShapeVectors& inputs,
                            const ShapeVectors& outputs) mutable {
    ShapesArg<I> in(inputs, "input");
    ShapesArg<O> out(outputs, "output");
    return static_cast<uint64_t>(f(PassAttrs<A>(attrs), in.Get(), out.Get()));
  };
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_
