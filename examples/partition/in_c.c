/* A partitioner, its operator and a pass in C, on opkit_abi.h alone.
 *   gcc -std=c99 -O2 -shared -fPIC -Iinclude examples/partition/in_c.c -o libin_c.so
 * The partitioner takes chains of Neg and Abs; the pass removes nodes that are Identity.
 */
#include <opkit/abi/opkit_abi.h>
#include <string.h>

static const opkit_host* host;

static opkit_status fail(const char* text) {
  host->set_error(OPKIT_INVALID_ARGUMENT, text, strlen(text));
  return OPKIT_INVALID_ARGUMENT;
}

/* The partitioner. Which nodes it takes; the report shows why another stays. */
static opkit_status mark(void* work, const opkit_partition* partition) {
  const opkit_graph* graph = partition->graph;
  uint64_t i;
  (void)work;
  if (partition->num_options > 0) return fail("c_signs has no options");
  for (i = 0; i < graph->num_nodes; ++i) {
    const char* op = graph->nodes[i]->op;
    const opkit_status status = strcmp(op, "Neg") == 0 || strcmp(op, "Abs") == 0
                                    ? partition->take(partition, i, -1, 0)
                                    : partition->refuse(partition, i, "it is no Neg and no Abs");
    if (status != OPKIT_OK) return status;
  }
  return OPKIT_OK;
}
/* Whether it wants a subgraph: only a chain. */
static opkit_status review(void* work, const opkit_partition* partition) {
  (void)work;
  if (partition->subgraph->num_inputs == 1 && partition->subgraph->num_outputs == 1)
    return OPKIT_OK;
  return partition->reject(partition, "it is no chain");
}
static const char* subgraph_op(const opkit_partitioner* partitioner, int32_t kind) {
  (void)partitioner, (void)kind;
  return "c_chain";
}
static const opkit_partitioner signs = {.size = sizeof signs,
                                        .name = "c_signs",
                                        .file = __FILE__,
                                        .line = __LINE__,
                                        .subgraph_op = subgraph_op,
                                        .mark = mark,
                                        .review = review};
static const opkit_partitioner* const partitioners[] = {&signs};

/* The operator. An instance is the subgraph, which lasts as long as the node. */
static opkit_status create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
  (void)kernel;
  if (node->num_graphs != 1) return fail("c_chain carries one subgraph");
  *instance = (void*)node->graphs[0];
  return OPKIT_OK;
}
static void destroy(void* instance) { (void)instance; }
static opkit_status forward(void* instance, const opkit_call* call) {
  const opkit_graph* body = (const opkit_graph*)instance;
  const opkit_tensor* x = opkit_input(call, 0);
  const opkit_tensor* y = opkit_output(call, 0);
  const int64_t count = opkit_numel(x);
  int64_t i;
  uint64_t step;
  if (y->req == OPKIT_REQ_NONE) return OPKIT_OK;
  for (i = 0; i < count; ++i) {
    float value = ((const float*)x->data)[i];
    for (step = 0; step < body->num_nodes; ++step)
      if (body->nodes[step]->op[0] == 'N' || value < 0) value = -value; /* Neg, or Abs */
    ((float*)y->data)[i] = value;
  }
  return OPKIT_OK;
}
static opkit_status parse_attrs(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                                int32_t* num_outputs) {
  (void)op, (void)node;
  *num_inputs = *num_outputs = 1;
  return OPKIT_OK;
}
static opkit_status infer_type(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                               opkit_value* outputs) {
  (void)op, (void)node;
  inputs->dtype = outputs->dtype = OPKIT_FLOAT32;
  return OPKIT_OK;
}
static opkit_status infer_shape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
  (void)op, (void)node;
  if (inputs->rank < 0) return OPKIT_OK; /* not known yet */
  outputs->rank = inputs->rank;
  memcpy(outputs->dims, inputs->dims, sizeof outputs->dims);
  return OPKIT_OK;
}
static const opkit_kernel kernel = {.size = sizeof kernel,
                                    .device = "cpu",
                                    .create = create,
                                    .destroy = destroy,
                                    .forward = forward};
static const opkit_kernel* const kernels[] = {&kernel};
static const opkit_op chain = {.size = sizeof chain,
                               .name = "c_chain",
                               .doc = "Runs a chain of Neg and Abs.",
                               .file = __FILE__,
                               .line = __LINE__,
                               .flags = OPKIT_OP_SUBGRAPH | OPKIT_OP_NO_GRADIENT,
                               .num_kernels = 1,
                               .kernels = kernels,
                               .parse_attrs = parse_attrs,
                               .infer_type = infer_type,
                               .infer_shape = infer_shape};
static const opkit_op* const ops[] = {&chain};

/* The pass. What it says happens when it has returned, and only if the result is right. */
static int is_output(const opkit_graph* graph, const char* value) {
  uint64_t i;
  for (i = 0; i < graph->num_outputs; ++i)
    if (strcmp(graph->outputs[i], value) == 0) return 1;
  return 0;
}
static opkit_status drop_identities(const opkit_pass* pass, const opkit_rewrite* rewrite) {
  const opkit_graph* graph = rewrite->graph;
  uint64_t i;
  (void)pass;
  for (i = graph->num_nodes; i-- > 0;) { /* the last first: an Identity may read another */
    const opkit_node* node = graph->nodes[i];
    opkit_status status;
    if (strcmp(node->op, "Identity") != 0 || is_output(graph, node->outputs[0])) continue;
    status = rewrite->replace_uses(rewrite, node->outputs[0], node->inputs[0]);
    if (status == OPKIT_OK) status = rewrite->remove_node(rewrite, i);
    if (status != OPKIT_OK) return status;
  }
  return OPKIT_OK;
}
static const opkit_pass identities = {.size = sizeof identities,
                                      .name = "c_drop_identities",
                                      .file = __FILE__,
                                      .line = __LINE__,
                                      .run = drop_identities};
static const opkit_pass* const passes[] = {&identities};

static const opkit_library library = {.size = sizeof library,
                                      .abi_major = OPKIT_ABI_MAJOR,
                                      .abi_minor = OPKIT_ABI_MINOR,
                                      .num_ops = 1,
                                      .ops = ops,
                                      .num_partitioners = 1,
                                      .partitioners = partitioners,
                                      .num_passes = 1,
                                      .passes = passes};

const opkit_library* opkit_library_entry(const opkit_host* given) {
  host = given;
  return &library;
}
