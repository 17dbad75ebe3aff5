"""The only place that knows models: choosing one, asking it, scripting one.

Every module here offers a stream function, the one seam between the loop and a model
(`pi_agent_kernel.request.StreamFn`), and imports its provider inside it, so that importing this
package costs nothing.
"""
