# make run: the experiment of config.yaml; make test: the tests. Both set everything up first.
# The work is done by ./run, for machines without make.
.DEFAULT_GOAL := run
.PHONY: run setup test test-exact test-slow check docs clean

run setup test test-exact test-slow check docs:
	@./run $@

clean:  ## removes environments and caches, never results
	rm -rf .venvs .cache .snakemake .draftbench
