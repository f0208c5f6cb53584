"""Make a tiny Qwen3-MoE model with random weights, its tokenizer and its chat template.

The model knows nothing: it is for driving a real vLLM server through its whole API, fast and
without a download. One seed gives the same bytes every time, so that runs can be compared.
"""

import argparse
import hashlib
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

# As in Qwen's own tokenizer, these three are special (left out of the decoded text), and the
# markers are plain, since vLLM's tool and reasoning parsers must see them in the text.
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)

# What the tokenizer can say in one token, besides single bytes. Words of tool schemas are here as
# well, so that a request with dozens of tools stays a few thousand tokens.
WORDS = """
    a about after all also an and any are as at be been before but by can could day do down each end
    even find first for from get give go good great had hand has have he her here him his how if in
    into is it its just know large last left life like line little long look made make man many may
    me more most much must my name never new no not now number of off old on one only or other our
    out over own part people place point right said same say see set she should small so some state
    still such take tell than that the their them then there these they thing think this those
    through time to too turn two under until up us use very was water way we well went were what
    when where which while who will with word work world would write year you your array boolean
    call cache count decode description enum error false file function integer list model null
    object parameters path properties query request required result server start stop stream string
    system text token tool true type user assistant value
"""

CHAT_TEMPLATE = """\
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}
    {{- '<|im_start|>system\\n' + system }}
    {%- if tools %}
        {{- '\\n\\n' if system else '' }}
        {{- '# Tools\\n\\nYou can call these functions:\\n\\n<tools>' }}
        {%- for tool in tools %}
            {{- '\\n' + (tool | tojson) }}
        {%- endfor %}
        {{- '\\n</tools>\\n\\nTo call one, answer in this form:\\n\\n' }}
        {{- '<tool_call>\\n<function=name>\\n<parameter=key>\\nvalue\\n</parameter>\\n' }}
        {{- '</function>\\n</tool_call>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        {%- continue %}
    {%- endif %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for key, value in call.function.arguments.items() %}
            {{- '<parameter=' + key + '>\\n' }}
            {{- (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Build a byte-level BPE tokenizer that knows WORDS, each with and without a space before it.

    Nothing is trained, so the result does not depend on a trainer: a known word is taken whole
    (ignore_merges), and the merges, which spell words out from the left, cut up the unknown ones.
    """
    vocabulary = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in WORDS.split():
        for text in ("Ġ" + word, word):  # Ġ is the space in this alphabet
            for end in range(2, len(text) + 1):
                if text[:end] not in vocabulary:
                    vocabulary[text[:end]] = len(vocabulary)
                    merges.append((text[: end - 1], text[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=32768,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3MoeForCausalLM:
    """Build the model, small enough for hundreds of tokens per second on two cores."""
    config = Qwen3MoeConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="bfloat16",
    )
    model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    # NumPy's random stream is the same on every processor; torch's is not.
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() == 1:
                # The norms. Queries and keys are scaled up: each token then attends to few others,
                # and greedy decoding does not run into a short cycle after a long prompt.
                weight.fill_(3.0 if "q_norm" in name or "k_norm" in name else 1.0)
                continue
            # Activations of about unit size; the output layer wider, so that greedy decoding has a
            # clear first choice.
            std = {"model.embed_tokens.weight": 1.0, "lm_head.weight": 0.4}.get(
                name, weight.shape[-1] ** -0.5
            )
            values = random.standard_normal(weight.shape, dtype=np.float32) * np.float32(std)
            weight.copy_(torch.from_numpy(values))
        # Zero rows are never the greedy choice: special tokens, markers, padding, and bytes of
        # longer characters. So no answer ends early, and each token gives its own piece of text.
        for token_id in range(config.vocab_size):
            text = tokenizer.decode([token_id])
            if text in SPECIAL + MARKERS or not (
                text.isascii() and text.strip(" \n").isprintable()
            ):
                model.lm_head.weight[token_id] = 0.0
        model.lm_head.weight[len(tokenizer) :] = 0.0
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write the model")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    disable_progress_bar()
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, args.seed)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)
    digest = hashlib.sha256(args.folder.joinpath("model.safetensors").read_bytes()).hexdigest()
    print(f"model in {args.folder}: {model.num_parameters():,} parameters, sha256 {digest}")


if __name__ == "__main__":
    main()
