// Einsum: sums of products of elements, which an equation such as "ij,jk->ik" describes. The kernel
// visits every combination of indices once. Source:
// https://onnx.ai/onnx/operators/onnx__Einsum.html, opset 12.
#ifndef OPKIT_OPS_MATH_EINSUM_HPP_
#define OPKIT_OPS_MATH_EINSUM_HPP_

#include <algorithm>

#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// An equation as terms, one for each input: strings of letters, in which '.' stands for an
// ellipsis.
struct EinsumEquation {
  std::vector<std::string> inputs;
  std::string output;
};

// Throws kInvalidArgument if the text is not an equation for `count` inputs. Without "->" the
// output has the ellipsis, then the letters that occur once, sorted.
inline EinsumEquation ParseEinsum(const std::string& text, size_t count) {
  EinsumEquation equation{{""}, ""};
  auto fail = [&](const auto&... what) {
    Throw(ErrorCode::kInvalidArgument, "Einsum: the equation '", text, "' ", what...);
  };
  std::string* term = &equation.inputs[0];
  bool arrow = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == ' ') continue;
    if (letter == ',' && !arrow) {
      equation.inputs.emplace_back();
      term = &equation.inputs.back();
    } else if (letter == '-' && text.substr(i, 2) == "->" && !arrow) {
      arrow = true;
      term = &equation.output;
      ++i;
    } else if (text.substr(i, 3) == "...") {
      if (Contains(*term, '.')) fail("has two ellipses in one term");
      *term += '.';
      i += 2;
    } else if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) {
      if (arrow && Contains(*term, letter)) fail("has '", letter, "' twice in its output");
      *term += letter;
    } else {
      fail("has an unexpected '", letter, "' at index ", i);
    }
  }
  if (equation.inputs.size() != count)
    fail("has ", equation.inputs.size(), " terms, and the node has ", count, " inputs");
  std::string all;
  for (const std::string& input : equation.inputs) all += input;
  if (!arrow) {
    if (Contains(all, '.')) equation.output = ".";
    for (const char letter :
         std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
      if (std::count(all.begin(), all.end(), letter) == 1) equation.output += letter;
  }
  for (const char letter : equation.output)
    if (!Contains(all, letter)) fail("has '", letter, "' only in its output");
  return equation;
}

// The indices of an equation for inputs of known rank. Index i < output.size() is axis i of the
// output; the others are summed.
struct EinsumIndices {
  std::vector<Dim> extents;              // of each index
  std::vector<std::vector<int>> inputs;  // the index of each axis of each input
  int outputs = 0;                       // the number of indices of the output
};

// Throws kInvalidArgument if a term has not as many letters as its input has axes, or if extents
// contradict each other. The axes of an ellipsis are aligned at the last one and broadcast.
inline EinsumIndices FindEinsumIndices(const EinsumEquation& equation,
                                       const std::vector<SymbolicShape>& shapes) {
  int dots = 0;  // the most axes that an ellipsis stands for
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string& term = equation.inputs[i];
    const bool ellipsis = Contains(term, '.');
    const int letters = static_cast<int>(term.size()) - ellipsis;
    if (ellipsis ? shapes[i].rank() < letters : shapes[i].rank() != letters)
      Throw(ErrorCode::kInvalidArgument, "Einsum: input ", i, " has shape ", ToString(shapes[i]),
            ", and its term '", term, "' has ", letters, " letters");
    if (ellipsis) dots = (std::max)(dots, shapes[i].rank() - letters);
  }
  EinsumIndices found;
  std::vector<int> of_letter(256, -1);  // the index of a letter; of '.' the first one
  auto name = [&](char letter) {
    int& index = of_letter[static_cast<unsigned char>(letter)];
    if (index >= 0) return;
    index = static_cast<int>(found.extents.size());
    found.extents.resize(found.extents.size() + (letter == '.' ? Index(dots) : 1), Dim(1));
  };
  for (const char letter : equation.output) name(letter);
  found.outputs = static_cast<int>(found.extents.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<int>& axes = found.inputs.emplace_back();
    const std::string& term = equation.inputs[i];
    for (const char letter : term) {
      name(letter);
      const int first = of_letter[static_cast<unsigned char>(letter)];
      if (letter != '.') {
        axes.push_back(first);
        continue;
      }
      const int here = shapes[i].rank() - static_cast<int>(term.size()) + 1;
      for (int k = dots - here; k < dots; ++k) axes.push_back(first + k);
    }
    for (int axis = 0; axis < shapes[i].rank(); ++axis) {
      const Dim& extent = shapes[i][axis];
      Dim& known = found.extents[Index(axes[Index(axis)])];
      if (extent.is_known() && extent.value() == 1) continue;
      if (known.is_known() && known.value() == 1) {
        known = extent;
      } else if (known.is_known() && extent.is_known()) {
        if (known.value() != extent.value())
          Throw(ErrorCode::kInvalidArgument, "Einsum: axis ", axis, " of input ", i, " of shape ",
                ToString(shapes[i]), " has another extent than ", known.value(),
                ", which its index has elsewhere");
      } else if (extent.is_known()) {
        known = extent;  // the other extent is unknown: it must be this one or 1
      }
    }
  }
  return found;
}

inline void InferEinsum(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  const auto equation =
      ParseEinsum(c.Arg<std::string>("equation"), static_cast<size_t>(c.num_inputs()));
  std::vector<SymbolicShape> shapes;
  bool ranked = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    shapes.push_back(c.input_shape(i));
    ranked = ranked && shapes.back().has_rank();
  }
  SymbolicShape shape;
  if (ranked) {
    EinsumIndices indices = FindEinsumIndices(equation, shapes);
    indices.extents.resize(Index(indices.outputs));
    shape = SymbolicShape(std::move(indices.extents));
  }
  c.SetOutput(0, dtype, shape);
}

// The gradient of an input is an Einsum too: of the output's gradient and the other inputs.
OPKIT_NODE_GRADIENT(Einsum) {
  const auto equation =
      ParseEinsum(Def().args().Get<std::string>("equation"), Def().inputs().size());
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    std::string others = equation.output;
    std::vector<std::string> inputs{GO(0)};
    for (size_t k = 0; k < equation.inputs.size(); ++k) {
      if (k == i) continue;
      others += "," + equation.inputs[k];
      inputs.push_back(I(static_cast<int>(k)));
    }
    const std::string& term = equation.inputs[i];
    for (const char letter : term)
      if (letter == '.' || std::count(term.begin(), term.end(), letter) > 1 ||
          !Contains(others, letter))
        Throw(ErrorCode::kUnsupported, "Einsum has no gradient for the term '", term,
              "': it has an ellipsis, a letter twice, or a letter that no other term has");
    Give(static_cast<int>(i), "Einsum", inputs, {{"equation", others + "->" + term}});
  }
}

}  // namespace detail

// Sums in double, and integers modulo 2^64.
class EinsumOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    std::vector<SymbolicShape> shapes;
    for (int i = 0; i < InputSize(); ++i) shapes.emplace_back(Input(i).shape());
    Tensor* y = InferredOutput(0);
    const detail::EinsumIndices found = detail::FindEinsumIndices(equation_, shapes);
    const int count = static_cast<int>(found.extents.size());
    extents_.clear();
    for (const Dim& extent : found.extents) extents_.push_back(extent.value());
    // The step of each input along each index, in elements. A letter that a term has twice walks
    // along the diagonal; an axis of extent 1 stays where it is.
    steps_.assign(detail::Index(InputSize()), std::vector<int64_t>(detail::Index(count), 0));
    for (int i = 0; i < InputSize(); ++i) {
      const Dims strides = Input(i).shape().DenseStrides();
      for (int axis = 0; axis < Input(i).rank(); ++axis)
        if (Input(i).dim(axis) != 1)
          steps_[detail::Index(i)]
                [detail::Index(found.inputs[detail::Index(i)][detail::Index(axis)])] +=
              strides[axis];
    }
    int64_t products = 1;  // of one element of the output
    for (int k = found.outputs; k < count; ++k) products *= extents_[detail::Index(k)];
    return Visit<NumericTypes>([&]<class T>() {
      std::vector<const T*> data;
      for (int i = 0; i < InputSize(); ++i) data.push_back(DenseInput(i).data<T>());
      T* out = y->mutable_data<T>();
      ParallelForRange(y->numel(), kGrain / (products + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = Element(data, found.outputs, i, products);
      });
    });
  }

 private:
  static constexpr int64_t kGrain = 8192;  // products for one thread

  // Returns element `at` of the output.
  template <class T>
  T Element(const std::vector<const T*>& data, int outputs, int64_t at, int64_t products) const {
    using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    std::vector<const T*> begin = data;
    Sum sum = 0;
    if (products > 0) Move(&begin, 0, outputs, at);  // else an input has no elements
    for (int64_t p = 0; p < products; ++p) {
      std::vector<const T*> place = begin;
      Move(&place, outputs, static_cast<int>(extents_.size()), p);
      Sum product = 1;
      for (const T* x : place) product *= static_cast<Sum>(*x);
      sum += product;
    }
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(sum);
    else
      return detail::ElementOfSum<T>(sum);
  }
  // Moves each pointer to combination `number` of the indices [first, last), the last one fastest.
  template <class T>
  void Move(std::vector<const T*>* places, int first, int last, int64_t number) const {
    for (int k = last - 1; k >= first; --k) {
      const int64_t extent = extents_[detail::Index(k)], index = number % extent;
      number /= extent;
      for (size_t i = 0; i < places->size(); ++i)
        (*places)[i] += index * steps_[i][detail::Index(k)];
    }
  }

  const detail::EinsumEquation equation_ =
      detail::ParseEinsum(GetSingleArgument<std::string>("equation"), def().inputs().size());
  std::vector<int64_t> extents_;
  std::vector<std::vector<int64_t>> steps_;
};

OPKIT_STANDARD_OPERATOR(Einsum, kMaker, EinsumOp)
    .NumInputs(1, 1 << 20)
    .Input(0, "Inputs", "tensors of one type", NumericTypes::DTypes())
    .Output(0, "Output", "of the type of the inputs; an axis for each letter of its term",
            NumericTypes::DTypes())
    .RequiredArg<std::string>(
        "equation",
        "a term of letters for each input, one letter for each axis, and after -> the term of the "
        "output; an ellipsis stands for any axes")
    .Infer(detail::InferEinsum)
    .Doc(
        "Sums of products of elements with equal letters, over the letters that the output lacks. "
        "Terms of different letters that another term has, too, have a gradient.");

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_EINSUM_HPP_
