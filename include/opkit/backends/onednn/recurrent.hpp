// LSTM and GRU of float32 for the "onednn" backend, with constant weights, one direction and the
// default activations. The plan packs the weights once, in oneDNN's order of the gates.
#ifndef OPKIT_BACKENDS_ONEDNN_RECURRENT_HPP_
#define OPKIT_BACKENDS_ONEDNN_RECURRENT_HPP_

#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/nn/recurrent.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns, for each gate of oneDNN, its index among the gates of ONNX. For LSTM oneDNN's order is
// input, forget, cell, output; ONNX's order is input, output, forget, cell. For GRU both are the
// same.
template <class Layer>
std::vector<int64_t> OnednnGates() {
  if constexpr (Layer::kHasCell) return {0, 2, 3, 1};
  return {0, 1, 2};
}

// A layer of known extents, in the terms of oneDNN. Makes its primitives.
template <class Layer>
struct OnednnRecurrent {
  using Desc = dnnl::memory::desc;
  static constexpr int64_t kGates = Layer::kGates;

  RecurrentSizes sizes;
  bool reverse, variant, has_state, has_cell_state;
  Desc w = AnyWeights(sizes.input), r = AnyWeights(sizes.hidden);
  int64_t tensor_batch = sizes.batch;  // sequences of x and y; a piece runs some of them

  // Returns the descriptor of W or R, [1, gates * hidden, inputs], with oneDNN's axes: layers,
  // directions, inputs, gates, outputs.
  Desc StandardWeights(int64_t inputs) const {
    const int64_t gate = sizes.hidden * inputs;
    return {{1, 1, inputs, kGates, sizes.hidden},
            dnnl::memory::data_type::f32,
            {kGates * gate, kGates * gate, 1, gate, inputs}};
  }
  Desc AnyWeights(int64_t inputs) const { return Weights(inputs, dnnl::memory::format_tag::any); }
  Desc Weights(int64_t inputs, dnnl::memory::format_tag tag) const {
    return {{1, 1, inputs, kGates, sizes.hidden}, dnnl::memory::data_type::f32, tag};
  }
  // Sets the formats of the weights to those that oneDNN prefers. Replaces formats that are packed
  // for a fixed number of sequences, because pieces have different numbers. Throws dnnl::error if
  // oneDNN has no kernel.
  void ChooseWeights() {
    const auto blocked = [&](const Desc& desc, int64_t inputs) {
      return desc.get_format_kind() == dnnl::memory::format_kind::blocked
                 ? desc
                 : Weights(inputs, dnnl::memory::format_tag::ldigo);
    };
    Make([&](const auto& kernel) {
      w = blocked(kernel.weights_layer_desc(), sizes.input);
      r = blocked(kernel.weights_iter_desc(), sizes.hidden);
    });
    Make([](const auto&) {});
  }
  // Returns the descriptor of x or y, [steps, batch, values].
  Desc Steps(int64_t values) const {
    return {{sizes.steps, sizes.batch, values},
            dnnl::memory::data_type::f32,
            {tensor_batch * values, values, 1}};
  }
  double flops() const {
    return 2.0 * static_cast<double>(sizes.steps * sizes.batch) *
           static_cast<double>(kGates * sizes.hidden * (sizes.input + sizes.hidden));
  }
  // Returns the number of biases for each hidden element: one for each gate, and one more for GRU
  // with linear_before_reset.
  int64_t bias_gates() const { return kGates + (!Layer::kHasCell && variant); }

  // Calls use(kernel) with oneDNN's description of the kernel. Throws dnnl::error if oneDNN has
  // none.
  template <class Use>
  auto Make(Use use) const {
    const Desc x = Steps(sizes.input), y = Steps(sizes.hidden);
    const Desc state = RowMajorDesc({1, 1, sizes.batch, sizes.hidden}), none;
    const Desc from = has_state ? state : none, from_cell = has_cell_state ? state : none;
    const Desc bias = RowMajorDesc({1, 1, bias_gates(), sizes.hidden});
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto direction = reverse ? dnnl::rnn_direction::unidirectional_right2left
                                   : dnnl::rnn_direction::unidirectional_left2right;
    const dnnl::primitive_attr attributes = OnednnAttributes();
    if constexpr (Layer::kHasCell) {
      return use(dnnl::lstm_forward::primitive_desc(OnednnEngine(), kind, direction, x, from,
                                                    from_cell, w, r, bias, y, state, state,
                                                    attributes));
    } else if (variant) {
      return use(dnnl::lbr_gru_forward::primitive_desc(OnednnEngine(), kind, direction, x, from, w,
                                                       r, bias, y, state, attributes));
    } else {
      return use(dnnl::gru_forward::primitive_desc(OnednnEngine(), kind, direction, x, from, w, r,
                                                   bias, y, state, attributes));
    }
  }
  // Cuts the layer into pieces for `threads` threads. The sequences of a batch are independent: a
  // piece runs some sequences from the first step to the last, so that threads need not synchronize
  // at every step.
  std::vector<OnednnPiece> Cut(int threads) const {
    const int64_t parts = OnednnPieces(flops(), threads, sizes.batch);
    std::vector<OnednnPiece> pieces;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t first = sizes.batch * i / parts;
      OnednnRecurrent part = *this;
      part.sizes.batch = sizes.batch * (i + 1) / parts - first;
      pieces.push_back(
          part.Make([&](const auto& kernel) { return part.PieceFrom(kernel, first); }));
    }
    return pieces;
  }

 private:
  // Returns the part of the work that begins with sequence `first` of the batch.
  template <class Kernel>
  OnednnPiece PieceFrom(const Kernel& kernel, int64_t first) const {
    OnednnPiece piece{dnnl::primitive(kernel), {}, kernel.scratchpad_desc()};
    const auto add = [&](int kind, const Desc& desc, int64_t at = 0) {
      piece.arguments.push_back({kind, desc, at});
    };
    const int64_t state = first * sizes.hidden;
    add(DNNL_ARG_SRC_LAYER, kernel.src_layer_desc(), first * sizes.input);
    if (has_state) add(DNNL_ARG_SRC_ITER, kernel.src_iter_desc(), state);
    if constexpr (Layer::kHasCell)
      if (has_cell_state) add(DNNL_ARG_SRC_ITER_C, kernel.src_iter_c_desc(), state);
    add(DNNL_ARG_WEIGHTS_LAYER, kernel.weights_layer_desc());
    add(DNNL_ARG_WEIGHTS_ITER, kernel.weights_iter_desc());
    add(DNNL_ARG_BIAS, kernel.bias_desc());
    add(DNNL_ARG_DST_LAYER, kernel.dst_layer_desc(), state);
    add(DNNL_ARG_DST_ITER, kernel.dst_iter_desc(), state);
    if constexpr (Layer::kHasCell) add(DNNL_ARG_DST_ITER_C, kernel.dst_iter_c_desc(), state);
    return piece;
  }
};

}  // namespace detail

template <class Layer>
class RecurrentOnednnOp final : public RecurrentOpBase<Layer> {
  using Base = RecurrentOpBase<Layer>;
  using Recurrent = detail::OnednnRecurrent<Layer>;

 public:
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 3);
    if (std::string why = WhyNot(query.def); !why.empty())
      throw UnsupportedOperatorFeature(std::move(why));
    for (const int weights : {Base::kW, Base::kR})
      if (!query.inputs[detail::Index(weights)].constant)
        throw UnsupportedOperatorFeature(
            "its weights are not constant, and would be packed in every run");
    const Shape x = query.inputs[Base::kX].shape.ToShape(),
                r = query.inputs[Base::kR].shape.ToShape();
    Recurrent layer{{x, r, false}, false, Base::IsVariant(query.def), false, false};
    detail::RequireOnednnWork(query, layer.flops());
    KernelConfig config;
    config.input_layouts.resize(query.inputs.size());
    config.output_layouts.resize(query.outputs.size());
    try {
      const OnednnScope scope;
      layer.ChooseWeights();
      config.input_layouts[Base::kW] = PackedLayout(layer, layer.w, x[2]);
      config.input_layouts[Base::kR] = PackedLayout(layer, layer.r, r[2]);
    } catch (const dnnl::error& error) {
      throw UnsupportedOperatorFeature(StrCat("oneDNN has no kernel for it: ", error.what()));
    }
    return {config};
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor &w = this->Input(Base::kW), &r = this->Input(Base::kR);
    if (std::string why = WhyNot(this->def()); !why.empty())
      throw UnsupportedOperatorFeature(std::move(why));
    if (w.layout().is_standard() || r.layout().is_standard())
      throw UnsupportedOperatorFeature("its weights are not packed; plans pack them");
    const RecurrentSizes sizes = this->SizesNow();
    Tensor* outputs[3] = {};
    for (int o = 0; o < 3; ++o)
      if (o < this->OutputSize() && this->HasOutput(o)) outputs[o] = this->InferredOutput(o);
    if (sizes.steps * sizes.batch * sizes.hidden == 0 || sizes.input == 0)
      throw UnsupportedOperatorFeature("it has no empty sequences");
    const auto input = [&](int i) -> const void* {
      return this->HasInput(i) ? this->DenseInput(i).raw_data() : nullptr;
    };
    const void* h = input(Base::kInitialH);
    const void* c = nullptr;
    if constexpr (Layer::kHasCell) c = input(Base::kInitialC);
    if (Layer::kHasCell && !h != !c) {  // oneDNN needs both or none
      zeros_.assign(detail::Index(sizes.batch * sizes.hidden), 0);
      (h ? c : h) = zeros_.data();
    }
    const bool has_state = static_cast<bool>(h);
    SumBias(sizes);
    // Outputs that the node leaves out are written here.
    spare_.resize(detail::Index((sizes.steps + 2) * sizes.batch * sizes.hidden));
    float* spare = spare_.data();
    const auto output = [&](int o, int64_t steps) -> void* {
      float* here = spare;
      spare += steps * sizes.batch * sizes.hidden;
      return outputs[o] ? outputs[o]->raw_mutable_data() : here;
    };
    void* const y = output(0, sizes.steps);
    void* const y_h = output(1, 1);
    void* const y_c = Layer::kHasCell ? output(2, 1) : nullptr;
    const uint64_t version = 2 * this->inference().version() + has_state;
    primitive_.Run(*this, version,
                   {this->DenseInput(Base::kX).raw_data(), h, c, w.raw_data(), r.raw_data(),
                    bias_.data(), y, y_h, y_c},
                   [&](int threads) {
                     const Recurrent layer{sizes,
                                           this->IsReverse(0),
                                           this->variant_,
                                           has_state,
                                           has_state && Layer::kHasCell,
                                           detail::OnednnDescriptorOf(w.layout()).desc(),
                                           detail::OnednnDescriptorOf(r.layout()).desc()};
                     return layer.Cut(threads);
                   });
    return true;
  }

 private:
  // Returns the feature of a node that oneDNN lacks, as a reason; empty if oneDNN supports all.
  static std::string WhyNot(const OperatorDef& def) {
    const Arguments& args = def.args();
    const auto has = [&](size_t i) { return i < def.inputs().size() && !def.inputs()[i].empty(); };
    if (detail::RecurrentDirections(def) != 1) return "it goes through the steps one way alone";
    if (args.Get<int64_t>("layout", 0) != 0) return "it has the steps first, not the batch";
    if (args.Get<float>("clip", 0.f) != 0) return "it does not bound the gates";
    if (Layer::kHasCell && Base::IsVariant(def)) return "its forget gate is not 1 - the input gate";
    const auto names = args.Get<std::vector<std::string>>("activations", {});
    if (!names.empty() && names != Layer::Functions()) return "it has the default activations";
    if (has(Base::kLengths)) return "its sequences have one length";
    if (Layer::kHasCell && has(Base::kP)) return "it has no peepholes";
    return {};
  }
  static Layout PackedLayout(const Recurrent& layer, const dnnl::memory::desc& packed,
                             int64_t inputs) {
    return {detail::OnednnLayoutId(),
            detail::MakeIntrusive<const detail::OnednnDescriptor>(
                packed, layer.StandardWeights(inputs), 0, detail::OnednnGates<Layer>())};
  }
  // Sets bias_ to the sums of the biases of W and R, in oneDNN's order of gates. Costs a fraction
  // of one step.
  void SumBias(const RecurrentSizes& sizes) {
    const auto gates = detail::OnednnGates<Layer>();
    const bool apart = !Layer::kHasCell && this->variant_;  // the hidden gate keeps two biases
    bias_.assign(detail::Index((Layer::kGates + apart) * sizes.hidden), 0);
    if (!this->HasInput(Base::kB)) return;
    const float* given = this->DenseInput(Base::kB).template data<float>();
    const float* recurrent = given + Layer::kGates * sizes.hidden;
    for (int64_t g = 0; g < Layer::kGates; ++g)
      for (int64_t k = 0; k < sizes.hidden; ++k) {
        const int64_t from = gates[detail::Index(g)] * sizes.hidden + k;
        float& bias = bias_[detail::Index(g * sizes.hidden + k)];
        bias = given[from];
        if (apart && g == Layer::kGates - 1)
          bias_[detail::Index((g + 1) * sizes.hidden + k)] = recurrent[from];
        else
          bias += recurrent[from];
      }
  }

  std::vector<float> bias_, zeros_, spare_;
  detail::OnednnPrimitive primitive_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(LSTM, onednn, RecurrentOnednnOp<LstmLayer>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(GRU, onednn, RecurrentOnednnOp<GruLayer>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_RECURRENT_HPP_
