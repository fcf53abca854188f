"""`accounts.formats` for templates: `{{ amount|money }}`, `{{ count|number }}`, `{{ time|moment }}`."""

from django import template

from accounts import formats

register = template.Library()
for form in (formats.dollars, formats.exactly, formats.moment, formats.money, formats.number):
    register.filter(form.__name__, form)
