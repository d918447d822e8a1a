// Where every member of the ABI lies: it stays there, and a struct grows only at its end, in a
// later version. Included once, where the header is: the present one, a later one or version 1.0's.
#ifndef OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_
#define OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_

#include <cstddef>

#include "opkit/abi/opkit_abi.h"

#define OPKIT_PIN(type, member, at) \
  static_assert(offsetof(type, member) == (at), "the ABI has moved " #type "." #member)
#define OPKIT_PIN_SIZE(type, bytes)                                                       \
  static_assert(OPKIT_ABI_MINOR == 0 ? sizeof(type) == (bytes) : sizeof(type) >= (bytes), \
                "the ABI has changed " #type " without a new version")
static_assert(OPKIT_ABI_MAJOR == 1);
// clang-format off
OPKIT_PIN_SIZE(opkit_tensor, 72); OPKIT_PIN(opkit_tensor, size, 0);
OPKIT_PIN(opkit_tensor, extension, 8); OPKIT_PIN(opkit_tensor, data, 16);
OPKIT_PIN(opkit_tensor, shape, 24); OPKIT_PIN(opkit_tensor, strides, 32);
OPKIT_PIN(opkit_tensor, rank, 40); OPKIT_PIN(opkit_tensor, dtype, 44);
OPKIT_PIN(opkit_tensor, device_type, 48); OPKIT_PIN(opkit_tensor, device_index, 52);
OPKIT_PIN(opkit_tensor, req, 56); OPKIT_PIN(opkit_tensor, reserved, 60);
OPKIT_PIN(opkit_tensor, host, 64);
OPKIT_PIN_SIZE(opkit_attr, 88); OPKIT_PIN(opkit_attr, size, 0); OPKIT_PIN(opkit_attr, extension, 8);
OPKIT_PIN(opkit_attr, name, 16); OPKIT_PIN(opkit_attr, type, 24);
OPKIT_PIN(opkit_attr, reserved, 28); OPKIT_PIN(opkit_attr, count, 32);
OPKIT_PIN(opkit_attr, ints, 40); OPKIT_PIN(opkit_attr, floats, 48);
OPKIT_PIN(opkit_attr, strings, 56); OPKIT_PIN(opkit_attr, string_sizes, 64);
OPKIT_PIN(opkit_attr, tensors, 72); OPKIT_PIN(opkit_attr, text, 80);
OPKIT_PIN_SIZE(opkit_graph, 96); OPKIT_PIN(opkit_graph, size, 0);
OPKIT_PIN(opkit_graph, extension, 8); OPKIT_PIN(opkit_graph, name, 16);
OPKIT_PIN(opkit_graph, num_inputs, 24); OPKIT_PIN(opkit_graph, inputs, 32);
OPKIT_PIN(opkit_graph, num_outputs, 40); OPKIT_PIN(opkit_graph, outputs, 48);
OPKIT_PIN(opkit_graph, num_constants, 56); OPKIT_PIN(opkit_graph, constant_names, 64);
OPKIT_PIN(opkit_graph, constants, 72); OPKIT_PIN(opkit_graph, num_nodes, 80);
OPKIT_PIN(opkit_graph, nodes, 88);
OPKIT_PIN_SIZE(opkit_node, 104); OPKIT_PIN(opkit_node, size, 0);
OPKIT_PIN(opkit_node, extension, 8); OPKIT_PIN(opkit_node, op, 16); OPKIT_PIN(opkit_node, name, 24);
OPKIT_PIN(opkit_node, device_type, 32); OPKIT_PIN(opkit_node, device_index, 36);
OPKIT_PIN(opkit_node, num_inputs, 40); OPKIT_PIN(opkit_node, inputs, 48);
OPKIT_PIN(opkit_node, num_outputs, 56); OPKIT_PIN(opkit_node, outputs, 64);
OPKIT_PIN(opkit_node, num_attrs, 72); OPKIT_PIN(opkit_node, attrs, 80);
OPKIT_PIN(opkit_node, num_graphs, 88); OPKIT_PIN(opkit_node, graphs, 96);
OPKIT_PIN_SIZE(opkit_value, 296); OPKIT_PIN(opkit_value, size, 0);
OPKIT_PIN(opkit_value, extension, 8); OPKIT_PIN(opkit_value, present, 16);
OPKIT_PIN(opkit_value, dtype, 20); OPKIT_PIN(opkit_value, rank, 24);
OPKIT_PIN(opkit_value, reserved, 28); OPKIT_PIN(opkit_value, dims, 32);
OPKIT_PIN(opkit_value, constant, 288);
OPKIT_PIN_SIZE(opkit_call, 184); OPKIT_PIN(opkit_call, size, 0);
OPKIT_PIN(opkit_call, extension, 8); OPKIT_PIN(opkit_call, host, 16);
OPKIT_PIN(opkit_call, context, 24); OPKIT_PIN(opkit_call, op, 32);
OPKIT_PIN(opkit_call, num_inputs, 40); OPKIT_PIN(opkit_call, inputs, 48);
OPKIT_PIN(opkit_call, num_outputs, 56); OPKIT_PIN(opkit_call, outputs, 64);
OPKIT_PIN(opkit_call, scratch, 72); OPKIT_PIN(opkit_call, scratch_bytes, 80);
OPKIT_PIN(opkit_call, stream, 88); OPKIT_PIN(opkit_call, device_type, 96);
OPKIT_PIN(opkit_call, device_index, 100); OPKIT_PIN(opkit_call, asynchronous, 104);
OPKIT_PIN(opkit_call, reserved, 108); OPKIT_PIN(opkit_call, random_seed, 112);
OPKIT_PIN(opkit_call, author, 120);
OPKIT_PIN_SIZE(opkit_scope, 64); OPKIT_PIN(opkit_scope, storage, 0);
OPKIT_PIN_SIZE(opkit_invocation, 24); OPKIT_PIN(opkit_invocation, id, 0);
OPKIT_PIN(opkit_invocation, parent, 8); OPKIT_PIN(opkit_invocation, kind, 16);
OPKIT_PIN_SIZE(opkit_host, 152); OPKIT_PIN(opkit_host, size, 0);
OPKIT_PIN(opkit_host, extension, 8); OPKIT_PIN(opkit_host, abi_major, 16);
OPKIT_PIN(opkit_host, abi_minor, 20); OPKIT_PIN(opkit_host, version, 24);
OPKIT_PIN(opkit_host, set_error, 32); OPKIT_PIN(opkit_host, add_error, 40);
OPKIT_PIN(opkit_host, failure_text, 48); OPKIT_PIN(opkit_host, alloc, 56);
OPKIT_PIN(opkit_host, temporary, 64); OPKIT_PIN(opkit_host, parallel_for, 72);
OPKIT_PIN(opkit_host, launch, 80); OPKIT_PIN(opkit_host, invoke, 88);
OPKIT_PIN(opkit_host, log, 96); OPKIT_PIN(opkit_host, scope_begin, 104);
OPKIT_PIN(opkit_host, scope_end, 112); OPKIT_PIN(opkit_host, invocation, 120);
OPKIT_PIN(opkit_host, adopt, 128); OPKIT_PIN(opkit_host, defer, 136);
OPKIT_PIN(opkit_host, complete, 144);
OPKIT_PIN_SIZE(opkit_kernel, 72); OPKIT_PIN(opkit_kernel, size, 0);
OPKIT_PIN(opkit_kernel, extension, 8); OPKIT_PIN(opkit_kernel, device, 16);
OPKIT_PIN(opkit_kernel, create, 24); OPKIT_PIN(opkit_kernel, destroy, 32);
OPKIT_PIN(opkit_kernel, forward, 40); OPKIT_PIN(opkit_kernel, backward, 48);
OPKIT_PIN(opkit_kernel, flags, 56); OPKIT_PIN(opkit_kernel, author, 64);
OPKIT_PIN_SIZE(opkit_parameter, 56); OPKIT_PIN(opkit_parameter, size, 0);
OPKIT_PIN(opkit_parameter, extension, 8); OPKIT_PIN(opkit_parameter, name, 16);
OPKIT_PIN(opkit_parameter, doc, 24); OPKIT_PIN(opkit_parameter, default_value, 32);
OPKIT_PIN(opkit_parameter, type, 40); OPKIT_PIN(opkit_parameter, required, 44);
OPKIT_PIN(opkit_parameter, dtypes, 48);
OPKIT_PIN_SIZE(opkit_gradient, 80); OPKIT_PIN(opkit_gradient, size, 0);
OPKIT_PIN(opkit_gradient, extension, 8); OPKIT_PIN(opkit_gradient, node, 16);
OPKIT_PIN(opkit_gradient, dense, 24); OPKIT_PIN(opkit_gradient, indices, 32);
OPKIT_PIN(opkit_gradient, values, 40); OPKIT_PIN(opkit_gradient, context, 48);
OPKIT_PIN(opkit_gradient, new_name, 56); OPKIT_PIN(opkit_gradient, add_node, 64);
OPKIT_PIN(opkit_gradient, set_input, 72);
OPKIT_PIN_SIZE(opkit_op, 192); OPKIT_PIN(opkit_op, size, 0); OPKIT_PIN(opkit_op, extension, 8);
OPKIT_PIN(opkit_op, name, 16); OPKIT_PIN(opkit_op, doc, 24); OPKIT_PIN(opkit_op, file, 32);
OPKIT_PIN(opkit_op, line, 40); OPKIT_PIN(opkit_op, reserved, 44); OPKIT_PIN(opkit_op, flags, 48);
OPKIT_PIN(opkit_op, num_kernels, 56); OPKIT_PIN(opkit_op, kernels, 64);
OPKIT_PIN(opkit_op, num_inplace, 72); OPKIT_PIN(opkit_op, inplace, 80);
OPKIT_PIN(opkit_op, parse_attrs, 88); OPKIT_PIN(opkit_op, infer_type, 96);
OPKIT_PIN(opkit_op, infer_shape, 104); OPKIT_PIN(opkit_op, mutated_inputs, 112);
OPKIT_PIN(opkit_op, scratch_bytes, 120); OPKIT_PIN(opkit_op, num_attrs, 128);
OPKIT_PIN(opkit_op, attrs, 136); OPKIT_PIN(opkit_op, num_inputs, 144);
OPKIT_PIN(opkit_op, inputs, 152); OPKIT_PIN(opkit_op, num_outputs, 160);
OPKIT_PIN(opkit_op, outputs, 168); OPKIT_PIN(opkit_op, author, 176);
OPKIT_PIN(opkit_op, gradient, 184);
OPKIT_PIN_SIZE(opkit_library, 104); OPKIT_PIN(opkit_library, size, 0);
OPKIT_PIN(opkit_library, extension, 8); OPKIT_PIN(opkit_library, abi_major, 16);
OPKIT_PIN(opkit_library, abi_minor, 20); OPKIT_PIN(opkit_library, name, 24);
OPKIT_PIN(opkit_library, version, 32); OPKIT_PIN(opkit_library, initialize, 40);
OPKIT_PIN(opkit_library, finalize, 48); OPKIT_PIN(opkit_library, num_ops, 56);
OPKIT_PIN(opkit_library, ops, 64); OPKIT_PIN(opkit_library, num_partitioners, 72);
OPKIT_PIN(opkit_library, partitioners, 80); OPKIT_PIN(opkit_library, num_passes, 88);
OPKIT_PIN(opkit_library, passes, 96);
#if OPKIT_ABI_MINOR >= 1
OPKIT_PIN(opkit_host, allocate_output, 152); OPKIT_PIN(opkit_kernel, backend, 72);
OPKIT_PIN(opkit_op, cost, 192);
OPKIT_PIN(opkit_cost, size, 0); OPKIT_PIN(opkit_cost, extension, 8);
OPKIT_PIN(opkit_cost, flops, 16); OPKIT_PIN(opkit_cost, bytes_read, 24);
OPKIT_PIN(opkit_cost, bytes_written, 32); OPKIT_PIN(opkit_cost, params_bytes, 40);
#endif
#if OPKIT_ABI_MINOR >= 2
OPKIT_PIN(opkit_host, invoke_async, 160); OPKIT_PIN(opkit_host, wait, 168);
#endif
#if OPKIT_ABI_MINOR >= 3
OPKIT_PIN(opkit_host, run_graph, 176);
OPKIT_PIN(opkit_call, input_layouts, 184); OPKIT_PIN(opkit_call, output_layouts, 192);
OPKIT_PIN(opkit_value, layout, 296);
OPKIT_PIN(opkit_kernel, propose, 80); OPKIT_PIN(opkit_kernel, create_for, 88);
OPKIT_PIN(opkit_config, size, 0); OPKIT_PIN(opkit_config, extension, 8);
OPKIT_PIN(opkit_config, input_layouts, 16); OPKIT_PIN(opkit_config, output_layouts, 24);
OPKIT_PIN(opkit_config, num_inplace, 32); OPKIT_PIN(opkit_config, inplace, 40);
OPKIT_PIN(opkit_config, scratch_bytes, 48); OPKIT_PIN(opkit_config, cost_ns, 56);
OPKIT_PIN(opkit_proposals, size, 0); OPKIT_PIN(opkit_proposals, extension, 8);
OPKIT_PIN(opkit_proposals, context, 16); OPKIT_PIN(opkit_proposals, add, 24);
OPKIT_PIN(opkit_layout, size, 0); OPKIT_PIN(opkit_layout, extension, 8);
OPKIT_PIN(opkit_layout, name, 16); OPKIT_PIN(opkit_layout, bytes, 24);
OPKIT_PIN(opkit_layout, to_standard, 32); OPKIT_PIN(opkit_layout, from_standard, 40);
OPKIT_PIN(opkit_layout, ns_per_byte, 48); OPKIT_PIN(opkit_layout, author, 56);
OPKIT_PIN(opkit_layout_converter, size, 0); OPKIT_PIN(opkit_layout_converter, extension, 8);
OPKIT_PIN(opkit_layout_converter, from, 16); OPKIT_PIN(opkit_layout_converter, to, 24);
OPKIT_PIN(opkit_layout_converter, convert, 32); OPKIT_PIN(opkit_layout_converter, ns_per_byte, 40);
OPKIT_PIN(opkit_layout_converter, author, 48);
OPKIT_PIN(opkit_device, size, 0); OPKIT_PIN(opkit_device, extension, 8);
OPKIT_PIN(opkit_device, name, 16); OPKIT_PIN(opkit_device, type, 24);
OPKIT_PIN(opkit_device, reserved, 28); OPKIT_PIN(opkit_device, available, 32);
OPKIT_PIN(opkit_device, alloc, 40); OPKIT_PIN(opkit_device, free, 48);
OPKIT_PIN(opkit_device, copy, 56); OPKIT_PIN(opkit_device, author, 64);
OPKIT_PIN(opkit_library, num_layouts, 104); OPKIT_PIN(opkit_library, layouts, 112);
OPKIT_PIN(opkit_library, num_layout_converters, 120);
OPKIT_PIN(opkit_library, layout_converters, 128); OPKIT_PIN(opkit_library, num_devices, 136);
OPKIT_PIN(opkit_library, devices, 144);
OPKIT_PIN(opkit_partition, size, 0); OPKIT_PIN(opkit_partition, extension, 8);
OPKIT_PIN(opkit_partition, context, 16); OPKIT_PIN(opkit_partition, graph, 24);
OPKIT_PIN(opkit_partition, taken, 32); OPKIT_PIN(opkit_partition, num_options, 40);
OPKIT_PIN(opkit_partition, option_names, 48); OPKIT_PIN(opkit_partition, option_values, 56);
OPKIT_PIN(opkit_partition, json, 64); OPKIT_PIN(opkit_partition, take, 72);
OPKIT_PIN(opkit_partition, refuse, 80); OPKIT_PIN(opkit_partition, subgraph, 88);
OPKIT_PIN(opkit_partition, op, 96); OPKIT_PIN(opkit_partition, id, 104);
OPKIT_PIN(opkit_partition, kind, 112); OPKIT_PIN(opkit_partition, reserved, 116);
OPKIT_PIN(opkit_partition, num_nodes, 120); OPKIT_PIN(opkit_partition, nodes, 128);
OPKIT_PIN(opkit_partition, reject, 136); OPKIT_PIN(opkit_partition, set_attr, 144);
OPKIT_PIN(opkit_partition, add_constant, 152); OPKIT_PIN(opkit_partitioner, size, 0);
OPKIT_PIN(opkit_partitioner, extension, 8); OPKIT_PIN(opkit_partitioner, name, 16);
OPKIT_PIN(opkit_partitioner, file, 24); OPKIT_PIN(opkit_partitioner, line, 32);
OPKIT_PIN(opkit_partitioner, reserved, 36); OPKIT_PIN(opkit_partitioner, subgraph_op, 40);
OPKIT_PIN(opkit_partitioner, begin, 48); OPKIT_PIN(opkit_partitioner, mark, 56);
OPKIT_PIN(opkit_partitioner, review, 64); OPKIT_PIN(opkit_partitioner, end, 72);
OPKIT_PIN(opkit_partitioner, author, 80); OPKIT_PIN(opkit_rewrite, size, 0);
OPKIT_PIN(opkit_rewrite, extension, 8); OPKIT_PIN(opkit_rewrite, context, 16);
OPKIT_PIN(opkit_rewrite, graph, 24); OPKIT_PIN(opkit_rewrite, num_options, 32);
OPKIT_PIN(opkit_rewrite, option_names, 40); OPKIT_PIN(opkit_rewrite, option_values, 48);
OPKIT_PIN(opkit_rewrite, add_node, 56); OPKIT_PIN(opkit_rewrite, replace_node, 64);
OPKIT_PIN(opkit_rewrite, remove_node, 72); OPKIT_PIN(opkit_rewrite, replace_uses, 80);
OPKIT_PIN(opkit_rewrite, add_constant, 88); OPKIT_PIN(opkit_rewrite, remove_constant, 96);
OPKIT_PIN(opkit_rewrite, set_graph, 104); OPKIT_PIN(opkit_pass, size, 0);
OPKIT_PIN(opkit_pass, extension, 8); OPKIT_PIN(opkit_pass, name, 16);
OPKIT_PIN(opkit_pass, file, 24); OPKIT_PIN(opkit_pass, line, 32);
OPKIT_PIN(opkit_pass, reserved, 36); OPKIT_PIN(opkit_pass, run, 40);
OPKIT_PIN(opkit_pass, author, 48); OPKIT_PIN(opkit_graph, num_values, 96);
OPKIT_PIN(opkit_graph, value_names, 104); OPKIT_PIN(opkit_graph, values, 112);
OPKIT_PIN(opkit_node, num_control_inputs, 104); OPKIT_PIN(opkit_node, control_inputs, 112);
OPKIT_PIN(opkit_node, backend, 120); OPKIT_PIN(opkit_node, is_gradient, 128);
OPKIT_PIN(opkit_node, reserved, 132);
#endif
// clang-format on
#undef OPKIT_PIN
#undef OPKIT_PIN_SIZE

#endif  // OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_
