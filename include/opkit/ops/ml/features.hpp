// ArrayFeatureExtractor, FeatureVectorizer, Imputer, OneHotEncoder and LabelEncoder: columns and
// categories of rows. Sources: https://onnx.ai/onnx/operators/
// onnx_aionnxml_ArrayFeatureExtractor.html and the pages of the others.
#ifndef OPKIT_OPS_ML_FEATURES_HPP_
#define OPKIT_OPS_ML_FEATURES_HPP_

#include <unordered_map>

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ArrayFeatureExtractorOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  using Types = ElementTypes<float, double, int64_t, int32_t, std::string>;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const std::vector<int64_t> indices = DenseInput(1).ToVector<int64_t>();
    Tensor* z = InferredOutput(0);
    const int64_t columns = x.dim(-1), count = static_cast<int64_t>(indices.size());
    for (const int64_t index : indices)
      if (index < 0 || index >= columns)
        Throw(ErrorCode::kOutOfRange, type(), ": index ", index, " is not a column of ",
              ToString(x));
    return Visit<Types>([&]<class T>() {
      const T* in = x.data<T>();
      T* out = z->mutable_data<T>();
      ParallelFor(columns == 0 ? 0 : x.numel() / columns, [&](int64_t row) {
        for (int64_t i = 0; i < count; ++i)
          out[row * count + i] = in[row * columns + indices[detail::Index(i)]];
      });
    });
  }
};

class FeatureVectorizerOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t columns = y->dim(1), rows = y->dim(0);
    float* out = y->mutable_data<float>();
    int64_t begin = 0;
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = DenseInput(i);
      const int64_t width = x.dim(-1);
      MlTypes::Visit(x.dtype(), [&]<class T>() {
        const T* in = x.data<T>();
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t k = 0; k < width; ++k)
            out[row * columns + begin + k] = static_cast<float>(in[row * width + k]);
      });
      begin += width;
    }
    return true;
  }
};

class ImputerOp final : public StandardOperator {
 public:
  ImputerOp(const OperatorDef& def, Workspace* ws)
      : StandardOperator(def, ws),
        floats_(detail::FloatList(def.args(), "imputed_value_floats")),
        ints_(detail::IntList(def.args(), "imputed_value_int64s")) {
    if (floats_.empty() == ints_.empty())
      Throw(ErrorCode::kInvalidArgument, type(),
            ": expected 'imputed_value_floats' or 'imputed_value_int64s', and not both");
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const auto size = static_cast<int64_t>((std::max)(floats_.size(), ints_.size()));
    const int64_t columns = x.rank() == 0 ? 1 : x.dim(-1);
    if (floats_.empty() == IsFloatingPoint(x.dtype()))
      Throw(ErrorCode::kInvalidArgument, type(), ": the values are ",
            floats_.empty() ? "integers" : "floats", ", but the input is ", ToString(x));
    if (size != 1 && size != columns)
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but there are values for ", size);
    return Visit<MlTypes>([&]<class T>() {
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      std::vector<T> values;
      for (const double value : floats_) values.push_back(static_cast<T>(value));
      for (const int64_t value : ints_) values.push_back(static_cast<T>(value));
      T replaced;
      if constexpr (std::is_floating_point_v<T>)
        replaced = static_cast<T>(replaced_float_);
      else
        replaced = static_cast<T>(replaced_int_);
      ParallelFor(x.numel(), [&](int64_t i) {
        const T v = in[i];
        const bool found = v == replaced || (v != v && replaced != replaced);
        out[i] = found ? values[size == 1 ? 0 : detail::Index(i % columns)] : v;
      });
    });
  }

 private:
  const std::vector<double> floats_;
  const std::vector<int64_t> ints_;
  const double replaced_float_ = GetSingleArgument<double>("replaced_value_float");
  const int64_t replaced_int_ = GetSingleArgument<int64_t>("replaced_value_int64");
};

class OneHotEncoderOp final : public StandardOperator {
 public:
  OneHotEncoderOp(const OperatorDef& def, Workspace* ws) : StandardOperator(def, ws) {
    const std::vector<int64_t> categories = detail::IntList(def.args(), "cats_int64s");
    for (size_t i = 0; i < categories.size(); ++i) places_[categories[i]] = static_cast<int64_t>(i);
    const auto names = def.args().Get<std::vector<std::string>>("cats_strings", {});
    for (size_t i = 0; i < names.size(); ++i) names_[names[i]] = static_cast<int64_t>(i);
    if (categories.empty() == names.empty())
      Throw(ErrorCode::kInvalidArgument, type(),
            ": expected categories in 'cats_int64s' or in 'cats_strings', and not in both");
    count_ = static_cast<int64_t>((std::max)(categories.size(), names.size()));
  }
  using Types = ElementTypes<float, double, int64_t, int32_t, std::string>;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    float* out = y->mutable_data<float>();
    if ((x.dtype() == DType::kString) == names_.empty())
      Throw(ErrorCode::kTypeMismatch, type(), ": the input is ", x, ", but the categories are ",
            names_.empty() ? "integers" : "strings");
    return Visit<Types>([&]<class T>() {
      const T* in = x.data<T>();
      for (int64_t i = 0; i < x.numel() && !zeros_; ++i) Place(in[i]);
      std::fill_n(out, x.numel() * count_, 0.f);
      for (int64_t i = 0; i < x.numel(); ++i)
        if (const int64_t place = Place(in[i]); place >= 0) out[i * count_ + place] = 1;
    });
  }

 private:
  // Returns the position of the category; -1 for an unknown category if 'zeros' allows it.
  int64_t Place(const std::string& value) const {
    const auto found = names_.find(value);
    if (found != names_.end()) return found->second;
    if (!zeros_)
      Throw(ErrorCode::kInvalidArgument, type(), ": '", value, "' is not one of the categories");
    return -1;
  }
  template <class T>
  int64_t Place(T value) const {
    bool whole = true;
    // Floats are cast to integers. Those that int64 cannot hold are no category.
    if constexpr (std::is_floating_point_v<T>) whole = value > T(-0x1p63) && value < T(0x1p63);
    const auto found = whole ? places_.find(static_cast<int64_t>(value)) : places_.end();
    if (found != places_.end()) return found->second;
    if (!zeros_)
      Throw(ErrorCode::kInvalidArgument, type(), ": ", value, " is not one of the categories");
    return -1;
  }

  std::unordered_map<int64_t, int64_t> places_;
  std::unordered_map<std::string, int64_t> names_;
  int64_t count_ = 0;
  const bool zeros_ = GetSingleArgument<int64_t>("zeros") != 0;
};

namespace detail {

// The keys or the values of a LabelEncoder, as a tensor of one axis.
inline Tensor LabelEncoderList(const OperatorDef& def, const std::string& what) {
  const Arguments& args = def.args();
  std::vector<Tensor> found;
  if (args.Has(what + "_strings")) {
    const auto list = args.Get<std::vector<std::string>>(what + "_strings");
    found.push_back(Tensor::From<std::string>({static_cast<int64_t>(list.size())}, list));
  }
  if (args.Has(what + "_tensor")) found.push_back(args.Get<Tensor>(what + "_tensor").Contiguous());
  if (args.Has(what + "_int64s")) {
    const std::vector<int64_t> list = IntList(args, what + "_int64s");
    found.push_back(Tensor::From<int64_t>({static_cast<int64_t>(list.size())}, list));
  }
  if (args.Has(what + "_floats")) {
    const auto list = args.Get<std::vector<float>>(what + "_floats");
    found.push_back(Tensor::From<float>({static_cast<int64_t>(list.size())}, list));
  }
  if (found.size() != 1)
    Throw(ErrorCode::kInvalidArgument, def.type(), " has ", found.size(), " lists of ", what,
          ", expected one of '", what, "_int64s', '", what, "_floats', '", what, "_strings' and '",
          what, "_tensor'");
  return found[0];
}

inline void InferArrayFeatureExtractor(InferenceContext& c) {
  const SymbolicShape &x = c.input_shape(0), &indices = c.input_shape(1);
  if (!x.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  if (x.rank() == 0)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the input is a scalar, expected columns");
  std::vector<Dim> dims = x.dims();
  if (x.rank() == 1) dims.insert(dims.begin(), Dim(1));
  dims.back() = Dim();
  if (indices.has_rank()) {
    // The indices are one list, whatever their shape.
    dims.back() = Dim(1);
    for (const Dim& dim : indices.dims()) {
      if (dim == Dim(1)) continue;
      dims.back() = dims.back() == Dim(1) ? dim : Dim(dims.back() * dim);
    }
  }
  c.SetOutput(0, c.input_dtype(0), SymbolicShape(std::move(dims)));
}
inline void InferFeatureVectorizer(InferenceContext& c) {
  const std::vector<int64_t> widths = IntList(c.def().args(), "inputdimensions");
  if (!widths.empty() && widths.size() != Index(c.num_inputs()))
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": 'inputdimensions' has ", widths.size(),
          " elements, but the node has ", c.num_inputs(), " inputs");
  Dim rows;
  int64_t columns = 0;
  bool known = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const MlRows each = RowsOf(c, i);
    if (!Dim::Compatible(rows, each.count))
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the inputs have ", ToString(rows),
            " and ", ToString(each.count), " rows");
    if (!rows.is_known()) rows = each.count;
    if (each.width.is_known() && !widths.empty() && each.width.value() != widths[Index(i)])
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", i, " has ",
            ToString(each.width), " columns, but 'inputdimensions' says ", widths[Index(i)]);
    known &= each.width.is_known();
    if (each.width.is_known()) columns += each.width.value();
  }
  c.SetOutput(0, DType::kFloat32, SymbolicShape({rows, known ? Dim(columns) : Dim()}));
}
inline void InferOneHotEncoder(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (!x.has_rank()) return c.SetOutput(0, DType::kFloat32, {});
  std::vector<Dim> dims = x.dims();
  const size_t count = IntList(c.def().args(), "cats_int64s").size() +
                       c.args().Get<std::vector<std::string>>("cats_strings", {}).size();
  dims.push_back(Dim(static_cast<int64_t>(count)));
  c.SetOutput(0, DType::kFloat32, SymbolicShape(std::move(dims)));
}
inline void InferLabelEncoder(InferenceContext& c) {
  const Tensor keys = LabelEncoderList(c.def(), "keys"),
               values = LabelEncoderList(c.def(), "values");
  if (keys.numel() != values.numel())
    Throw(ErrorCode::kInvalidArgument, c.def().type(), " has ", keys.numel(), " keys and ",
          values.numel(), " values, expected as many of both");
  ExpectDType(c, 0, {keys.dtype()});
  c.SetOutput(0, values.dtype(), c.input_shape(0));
}

}  // namespace detail

// Keys of every number type are compared as float64, or int64 for integers. Every NaN is one key.
class LabelEncoderOp final : public StandardOperator {
 public:
  using Types = ElementTypes<float, double, int64_t, int32_t, int16_t, std::string>;

  LabelEncoderOp(const OperatorDef& def, Workspace* ws)
      : StandardOperator(def, ws),
        keys_(detail::LabelEncoderList(def, "keys")),
        values_(detail::LabelEncoderList(def, "values")) {
    if (keys_.numel() != values_.numel())
      Throw(ErrorCode::kInvalidArgument, type(), " has ", keys_.numel(), " keys and ",
            values_.numel(), " values, expected as many of both");
    if (!Types::Has(keys_.dtype()) || !Types::Has(values_.dtype()))
      Throw(ErrorCode::kTypeMismatch, type(), " does not map ", keys_.dtype(), " to ",
            values_.dtype());
    Types::Visit(keys_.dtype(), [&]<class K>() {
      const K* keys = keys_.data<K>();
      for (int64_t i = 0; i < keys_.numel(); ++i)
        if constexpr (std::is_same_v<K, std::string>)
          names_[keys[i]] = i;
        else
          places_[Key(keys[i])] = i;
    });
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<Types>([&]<class K>() {
      const K* in = x.data<K>();
      Types::Visit(values_.dtype(), [&]<class V>() {
        const V* values = values_.data<V>();
        const V otherwise = Default<V>();
        V* out = y->mutable_data<V>();
        ParallelFor(x.numel(), [&](int64_t i) {
          const int64_t place = PlaceOf(in[i]);
          out[i] = place < 0 ? otherwise : values[place];
        });
      });
    });
  }

 private:
  // Returns the position of the key's value; -1 for an unknown key.
  template <class K>
  int64_t PlaceOf(const K& key) const {
    if constexpr (std::is_same_v<K, std::string>) {
      const auto found = names_.find(key);
      return found == names_.end() ? -1 : found->second;
    } else {
      const auto found = places_.find(Key(key));
      return found == places_.end() ? -1 : found->second;
    }
  }
  // Equal numbers have equal bits: -0 is 0, and all NaNs are one.
  template <class K>
  static int64_t Key(K key) {
    if constexpr (std::is_integral_v<K>) {
      return key;
    } else {
      if (key != key) return std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());
      return std::bit_cast<int64_t>(key == 0 ? 0.0 : static_cast<double>(key));
    }
  }
  template <class V>
  V Default() const {
    if (const Attribute* tensor = def().args().Find("default_tensor")) {
      const auto value = tensor->Get<Tensor>();
      if (value.dtype() != values_.dtype() || value.numel() != 1)
        Throw(ErrorCode::kTypeMismatch, type(), ": 'default_tensor' is ", ToString(value),
              ", expected one element of ", values_.dtype());
      return value.ToVector<V>()[0];
    }
    if constexpr (std::is_same_v<V, std::string>)
      return GetSingleArgument<std::string>("default_string");
    else if constexpr (std::is_integral_v<V>)
      return static_cast<V>(GetSingleArgument<int64_t>("default_int64"));
    else
      return static_cast<V>(GetSingleArgument<double>("default_float"));
  }

  const Tensor keys_, values_;
  std::unordered_map<int64_t, int64_t> places_;
  std::unordered_map<std::string, int64_t> names_;
};

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", ArrayFeatureExtractor, kNotImplemented, ArrayFeatureExtractorOp)
    .TakesStrings()
    .Doc("The columns of the last axis that a list of indices names.")
    .NumInputs(2)
    .Input(0, "X", "a tensor; one axis is one row", ArrayFeatureExtractorOp::Types::DTypes())
    .Input(1, "Y", "the indices of columns, from 0", {DType::kInt64})
    .Output(0, "Z", "X with the chosen columns")
    .Infer(&detail::InferArrayFeatureExtractor);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", FeatureVectorizer, kNotImplemented, FeatureVectorizerOp)
    .Doc("The columns of all inputs side by side, as float32.")
    .NumInputs(1, 1 << 20)
    .Input(0, "X", "rows, of shape [N, F] or [F]", MlTypes::DTypes())
    .Output(0, "Y", "of shape [N, sum of all F]", {DType::kFloat32})
    .Arg<std::vector<int64_t>>("inputdimensions", "for each input: its columns")
    .Infer(&detail::InferFeatureVectorizer);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", Imputer, kNotImplemented, ImputerOp)
    .Doc("Each element that equals a value (NaN, too) replaced by another, by column.")
    .Input(0, "X", "a tensor whose last axis are the columns", MlTypes::DTypes())
    .Output(0, "Y", "of X's shape and dtype")
    .Arg<double>("replaced_value_float", "the value to replace in floats", 0.0)
    .Arg<int64_t>("replaced_value_int64", "the value to replace in integers", 0)
    .Arg<std::vector<double>>("imputed_value_floats", "what replaces it: one, or one by column")
    .Arg<std::vector<int64_t>>("imputed_value_int64s", "the same for integers")
    .IdenticalTypeAndShape();

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", OneHotEncoder, kNone, OneHotEncoderOp)
    .Doc(
        "For each element a list with 1 at the position of its category and 0 elsewhere. Of equal "
        "categories the last counts.")
    .Input(0, "X", "a tensor; floats are cast to int64", OneHotEncoderOp::Types::DTypes())
    .Output(0, "Y", "of X's shape and an axis of the categories", {DType::kFloat32})
    .Arg<std::vector<int64_t>>("cats_int64s", "the categories")
    .Arg<std::vector<std::string>>("cats_strings", "the categories, as strings")
    .Arg<int64_t>("zeros", "1: an unknown category is all zeros; 0: it is an Error", 1)
    .Infer(&detail::InferOneHotEncoder);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", LabelEncoder, kNone, LabelEncoderOp)
    .Doc(
        "Each element replaced by the value of its key. Of equal keys the last counts. An element "
        "without a key becomes the default.")
    .Input(0, "X", "a tensor of the keys' dtype", LabelEncoderOp::Types::DTypes())
    .Output(0, "Y", "of X's shape and the values' dtype")
    .TakesStrings()
    .Arg<std::vector<int64_t>>("keys_int64s", "the keys, as int64")
    .Arg<std::vector<double>>("keys_floats", "the keys, as float32")
    .Arg<Tensor>("keys_tensor", "the keys, as a tensor")
    .Arg<std::vector<std::string>>("keys_strings", "the keys, as strings")
    .Arg<std::vector<int64_t>>("values_int64s", "the values, as int64")
    .Arg<std::vector<double>>("values_floats", "the values, as float32")
    .Arg<Tensor>("values_tensor", "the values, as a tensor")
    .Arg<std::vector<std::string>>("values_strings", "the values, as strings")
    .Arg<int64_t>("default_int64", "the default of integers", -1)
    .Arg<double>("default_float", "the default of floats", -0.0)
    .Arg<std::string>("default_string", "the default of strings", "_Unused")
    .Arg<Tensor>("default_tensor", "the default, in place of the other three")
    .Infer(&detail::InferLabelEncoder);

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_FEATURES_HPP_
